//! ERNIE 4.5 and its mixtures.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::{Dim, Line, line},
    model::{Family, Model},
    tables::{ATTENTION, MLP, NORMS},
};

pub(super) const ERNIE4_5: Family =
    Family { name: "ernie4_5", model_type: "ernie4_5", class: "Ernie4_5ForCausalLM", read: dense };

pub(super) const ERNIE4_5_MOE: Family =
    Family { name: "ernie4_5-moe", model_type: "ernie4_5_moe", class: "Ernie4_5_MoeForCausalLM", read: mixture };

const CHOICE_BIAS: Line =
    line("exp_probs_b.bias", "mlp.moe_statics.e_score_correction_bias", &[Dim::One, Dim::Experts]);

fn attention(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.decoder()?;
    model.intermediate()?;
    model.layer(&NORMS)?;
    model.layer(&ATTENTION)
}

fn dense(model: &mut Model<'_>) -> Result<(), GgufError> {
    attention(model)?;
    model.layer(&MLP)
}

fn mixture(model: &mut Model<'_>) -> Result<(), GgufError> {
    attention(model)?;
    let settings = &model.settings;
    let width = settings.required_size("expert_feed_forward_length")?;
    let first = settings.required_size("leading_dense_block_count")?;
    let interval = settings.required_size("interleave_moe_layer_step")?;
    let shared = settings.size("expert_shared_count")?.unwrap_or(0);
    // A width that is known, and that some converters computed from other sizes.
    settings.ignore(&["expert_shared_feed_forward_length"]);
    settings.only("expert_gating_func", &[1.0, 0.0])?;
    if interval == 0 {
        let key = settings.key("interleave_moe_layer_step");
        return Err(GgufError::Invalid { key, expected: "over 0" });
    }
    let [experts, per_token] = model.experts(width)?;
    let mixture = |layer: usize| layer >= first && (layer + 1).is_multiple_of(interval);
    model.mixtures(mixture, width, shared)?;
    model.layers_that(mixture, &[CHOICE_BIAS])?;
    model.set(json!({
        "moe_num_experts": experts, "moe_k": per_token, "moe_intermediate_size": width,
        "moe_num_shared_experts": shared, "moe_layer_start_index": first, "moe_layer_interval": interval,
    }));
    Ok(())
}
