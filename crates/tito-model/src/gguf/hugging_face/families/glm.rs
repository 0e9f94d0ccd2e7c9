//! GLM-4, and the mixtures of GLM-4.5 to 4.7.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::{Dim, Line, line},
    model::{Family, Model},
    tables::{ATTENTION, ATTENTION_BIASES, CHOICE_BIAS, HEAD_NORMS, JOINED_MLP, NORMS},
};

pub(super) const GLM4: Family = Family { name: "glm4", model_type: "glm4", class: "Glm4ForCausalLM", read: glm4 };

pub(super) const GLM4_MOE: Family =
    Family { name: "glm4moe", model_type: "glm4_moe", class: "Glm4MoeForCausalLM", read: glm4_moe };

const AFTER: [Line; 2] = [
    line("post_attention_norm.weight", "post_self_attn_layernorm.weight", &[Dim::Hidden]),
    line("post_ffw_norm.weight", "post_mlp_layernorm.weight", &[Dim::Hidden]),
];

const NORMS_OF_MIXTURES: [Line; 2] = [
    line("attn_norm.weight", "input_layernorm.weight", &[Dim::Hidden]),
    line("post_attention_norm.weight", "post_attention_layernorm.weight", &[Dim::Hidden]),
];

/// Attention, of whose heads only a part is rotated, and which may have biases but on the way back.
fn attention(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.partial_decoder()?;
    let share = model.rotated_share()?;
    model.intermediate()?;
    model.layer(&ATTENTION)?;
    let [queries, keys, values, _] = ATTENTION_BIASES;
    let bias = model.attention_biases(&[queries, keys, values])?;
    model.set(json!({"attention_bias": bias, "partial_rotary_factor": share}));
    Ok(())
}

fn glm4(model: &mut Model<'_>) -> Result<(), GgufError> {
    attention(model)?;
    model.layer(&NORMS)?;
    model.layer(&AFTER)?;
    model.layer(&JOINED_MLP)
}

fn glm4_moe(model: &mut Model<'_>) -> Result<(), GgufError> {
    attention(model)?;
    model.layer(&NORMS_OF_MIXTURES)?;
    let normed = model.has("blk.0.attn_q_norm.weight");
    if normed {
        model.layer(&HEAD_NORMS)?;
    }
    let settings = &model.settings;
    let width = settings.required_size("expert_feed_forward_length")?;
    let (dense, shared) =
        (settings.required_size("leading_dense_block_count")?, settings.required_size("expert_shared_count")?);
    // Sigmoids.
    settings.only("expert_gating_func", &[2.0])?;
    let normalized = settings.flag("expert_weights_norm")?.unwrap_or(true);
    let factor = settings.float("expert_weights_scale")?.filter(|factor| *factor != 0.0).unwrap_or(1.0);
    let groups = [settings.size("expert_group_count")?, settings.size("expert_group_used_count")?]
        .map(|count| count.unwrap_or(1).max(1));
    let [experts, per_token] = model.experts(width)?;
    let mixture = |layer| layer >= dense;
    model.mixtures(mixture, width, shared)?;
    model.layers_that(mixture, &[CHOICE_BIAS])?;
    model.set(json!({
        "use_qk_norm": normed, "first_k_dense_replace": dense, "n_routed_experts": experts,
        "num_experts_per_tok": per_token, "moe_intermediate_size": width, "n_shared_experts": shared,
        "norm_topk_prob": normalized, "routed_scaling_factor": factor, "n_group": groups[0], "topk_group": groups[1],
    }));
    Ok(())
}
