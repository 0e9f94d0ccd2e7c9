//! Ministral 3 and Mistral 4, whose queries grow with their positions.

use serde_json::{Value, json};

use super::{
    super::{
        super::GgufError,
        lines::{Dim, Line, line},
        model::{Family, Model},
        tables::{ATTENTION, MLP, NORMS, SHARED_EXPERTS, rotary},
    },
    deepseek::attention,
};

pub(super) const MISTRAL3: Family =
    Family { name: "mistral3", model_type: "ministral3", class: "Ministral3ForCausalLM", read: ministral3 };

pub(super) const MISTRAL4: Family =
    Family { name: "mistral4", model_type: "mistral4", class: "Mistral4ForCausalLM", read: mistral4 };

const ROUTER: Line = line("ffn_gate_inp.weight", "mlp.gate.weight", &[Dim::Experts, Dim::Hidden]);

const DOWN: Line = line("ffn_down_exps.weight", "mlp.experts.down_proj", &[Dim::Experts, Dim::Hidden, Dim::Expert]);

/// The scaling of frequencies, which all of these models have, with the base of frequencies: as one dictionary.
fn yarn(model: &mut Model<'_>) -> Result<Value, GgufError> {
    let theta = model.settings.float("rope.freq_base")?.unwrap_or(10_000.0);
    match model.take_scaling() {
        Some(mut scaling) if scaling["rope_type"] == "yarn" => {
            scaling["rope_theta"] = json!(theta);
            Ok(scaling)
        }
        _ => Err(GgufError::Missing(model.settings.key("rope.scaling.type"))),
    }
}

fn ministral3(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.decoder()?;
    model.intermediate()?;
    for lines in [&NORMS[..], &rotary(ATTENTION), &MLP] {
        model.layer(lines)?;
    }
    let mut parameters = yarn(model)?;
    // What is the same in all released models, and no key says of the other.
    model.settings.only("rope.scaling.yarn_log_multiplier", &[1.0])?;
    parameters["mscale"] = json!(1.0);
    parameters["mscale_all_dim"] = json!(1.0);
    parameters["llama_4_scaling_beta"] = json!(model.settings.required_float("attention.temperature_scale")?);
    model.set(json!({"rope_parameters": parameters, "sliding_window": null}));
    Ok(())
}

/// No key says by how much queries grow from the length of the original context on, so that the model's context is that
/// long: up to there they do not grow.
fn mistral4(model: &mut Model<'_>) -> Result<(), GgufError> {
    attention(model)?;
    let mut parameters = yarn(model)?;
    parameters["llama_4_scaling_beta"] = json!(0.0);
    let original = parameters["original_max_position_embeddings"].as_u64().unwrap_or(0);
    let context = u64::try_from(model.settings.required_size("context_length")?).unwrap_or(u64::MAX);
    // A head is as wide as its two parts together, which are there.
    let own =
        json!({"rope_parameters": parameters, "max_position_embeddings": context.min(original), "head_dim": null});
    model.set(own);
    model.intermediate()?;
    model.layer(&NORMS)?;
    let settings = &model.settings;
    let width = settings.required_size("expert_feed_forward_length")?;
    let (dense, shared) =
        (settings.required_size("leading_dense_block_count")?, settings.required_size("expert_shared_count")?);
    let normalized = settings.flag("expert_weights_norm")?.unwrap_or(false);
    let factor = settings.float("expert_weights_scale")?.filter(|factor| *factor != 0.0).unwrap_or(1.0);
    // A softmax.
    settings.only("expert_gating_func", &[1.0, 0.0])?;
    let [experts, per_token] = model.experts(width)?;
    model.sizes.set([(Dim::Shared, width.saturating_mul(shared))]);
    let mixture = |layer: usize| layer >= dense;
    let gate_up = model.gate_up_of_experts(dense, "mlp.experts.gate_up_proj");
    model.layers_that(|layer| !mixture(layer), &MLP)?;
    model.layers_that(mixture, &[ROUTER, gate_up, DOWN])?;
    if shared > 0 {
        model.layers_that(mixture, &SHARED_EXPERTS)?;
    }
    model.set(json!({
        "first_k_dense_replace": dense, "n_routed_experts": experts, "num_experts_per_tok": per_token,
        "moe_intermediate_size": width, "n_shared_experts": shared, "norm_topk_prob": normalized,
        "routed_scaling_factor": factor, "n_group": 1, "topk_group": 1,
    }));
    Ok(())
}
