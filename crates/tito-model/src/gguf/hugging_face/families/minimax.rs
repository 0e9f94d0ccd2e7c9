//! MiniMax-M2.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::{Dim, Line, line},
    model::{Family, Model},
    tables::{ATTENTION, EXPERTS_OF_MIXTRAL, NORMS, WHOLE_NORMS},
};

pub(super) const MINIMAX_M2: Family =
    Family { name: "minimax-m2", model_type: "minimax_m2", class: "MiniMaxM2ForCausalLM", read: minimax_m2 };

const CHOICE_BIAS: Line = line("exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias", &[Dim::Experts]);

fn minimax_m2(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.partial_decoder()?;
    let width = model.settings.required_size("expert_feed_forward_length")?;
    // All layers are mixtures.
    model.settings.ignore(&["feed_forward_length"]);
    // Sigmoids; no released model leaves it out.
    model.settings.only("expert_gating_func", &[2.0])?;
    let [experts, per_token] = model.experts(width)?;
    for lines in [&NORMS[..], &ATTENTION, &WHOLE_NORMS, &EXPERTS_OF_MIXTRAL, &[CHOICE_BIAS]] {
        model.layer(lines)?;
    }
    let head = model.sizes.get(Dim::Head);
    model.rotated_share()?;
    let rotated = model.rotated()?.unwrap_or(head);
    model.set(json!({
        "intermediate_size": width, "num_local_experts": experts, "num_experts_per_tok": per_token,
        "rotary_dim": rotated,
    }));
    Ok(())
}
