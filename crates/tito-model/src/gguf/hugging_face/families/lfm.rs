//! LFM2 and its mixtures: most layers are short convolutions.

use serde_json::json;

use super::{
    super::{
        super::GgufError,
        lines::{Dim, Line, each, line},
        model::{Family, Model},
        rope,
    },
    hybrid::attending,
};

pub(super) const LFM2: Family = Family { name: "lfm2", model_type: "lfm2", class: "Lfm2ForCausalLM", read: lfm2 };

pub(super) const LFM2_MOE: Family =
    Family { name: "lfm2moe", model_type: "lfm2_moe", class: "Lfm2MoeForCausalLM", read: lfm2_moe };

const ENDS: [Line; 2] = [
    line("token_embd.weight", "model.embed_tokens.weight", &[Dim::Vocab, Dim::Hidden]),
    line("token_embd_norm.weight", "model.embedding_norm.weight", &[Dim::Hidden]),
];

const NORMS: [Line; 2] = [
    line("attn_norm.weight", "operator_norm.weight", &[Dim::Hidden]),
    line("ffn_norm.weight", "ffn_norm.weight", &[Dim::Hidden]),
];

const ATTENTION: [Line; 6] = [
    line("attn_q.weight", "self_attn.q_proj.weight", &[Dim::Queries, Dim::Hidden]),
    line("attn_k.weight", "self_attn.k_proj.weight", &[Dim::Keys, Dim::Hidden]),
    line("attn_v.weight", "self_attn.v_proj.weight", &[Dim::Keys, Dim::Hidden]),
    line("attn_output.weight", "self_attn.out_proj.weight", &[Dim::Hidden, Dim::Queries]),
    line("attn_q_norm.weight", "self_attn.q_layernorm.weight", &[Dim::Head]),
    line("attn_k_norm.weight", "self_attn.k_layernorm.weight", &[Dim::Head]),
];

const CONVOLUTION: [Line; 3] = [
    line("shortconv.conv.weight", "conv.conv.weight", &[Dim::Hidden, Dim::One, Dim::Taps])
        .reshaped(&[Dim::Hidden, Dim::Taps]),
    line("shortconv.in_proj.weight", "conv.in_proj.weight", &[Dim::ConvolutionInputs, Dim::Hidden]),
    line("shortconv.out_proj.weight", "conv.out_proj.weight", &[Dim::Hidden, Dim::Hidden]),
];

const MLP: [Line; 3] = [
    line("ffn_gate.weight", "feed_forward.w1.weight", &[Dim::Intermediate, Dim::Hidden]),
    line("ffn_up.weight", "feed_forward.w3.weight", &[Dim::Intermediate, Dim::Hidden]),
    line("ffn_down.weight", "feed_forward.w2.weight", &[Dim::Hidden, Dim::Intermediate]),
];

const EXPERTS: [Line; 5] = [
    line("ffn_gate_inp.weight", "feed_forward.gate.weight", &[Dim::Experts, Dim::Hidden]),
    line("exp_probs_b.bias", "feed_forward.expert_bias", &[Dim::Experts]),
    each("ffn_gate_exps.weight", Dim::Experts, "feed_forward.experts.{}.w1.weight", &[Dim::Expert, Dim::Hidden]),
    each("ffn_up_exps.weight", Dim::Experts, "feed_forward.experts.{}.w3.weight", &[Dim::Expert, Dim::Hidden]),
    each("ffn_down_exps.weight", Dim::Experts, "feed_forward.experts.{}.w2.weight", &[Dim::Hidden, Dim::Expert]),
];

/// Layers that attend, and all others are convolutions.
fn hybrid(model: &mut Model<'_>) -> Result<(), GgufError> {
    let attending = attending(model)?;
    let taps = model.settings.required_size("shortconv.l_cache")?;
    let inputs = model.sizes.get(Dim::Hidden).saturating_mul(3);
    model.sizes.set([(Dim::Taps, taps), (Dim::ConvolutionInputs, inputs)]);
    let rope = rope::read(&model.settings)?;
    model.ends_with("norm_eps", &ENDS)?;
    let attends = |layer: usize| attending[layer];
    model.layer(&NORMS)?;
    model.layers_that(attends, &ATTENTION)?;
    model.layers_that(|layer| !attends(layer), &CONVOLUTION)?;
    let kinds: Vec<&str> = attending.iter().map(|attends| if *attends { "full_attention" } else { "conv" }).collect();
    model.set(json!({
        "rope_theta": rope.theta, "rope_scaling": rope.scaling, "layer_types": kinds, "conv_L_cache": taps,
        "conv_bias": false,
    }));
    Ok(())
}

fn lfm2(model: &mut Model<'_>) -> Result<(), GgufError> {
    hybrid(model)?;
    model.intermediate()?;
    model.layer(&MLP)?;
    // The file has the width that was made of what its source says.
    model.set(json!({"block_auto_adjust_ff_dim": false}));
    Ok(())
}

fn lfm2_moe(model: &mut Model<'_>) -> Result<(), GgufError> {
    hybrid(model)?;
    model.intermediate()?;
    let dense = model.settings.required_size("leading_dense_block_count")?;
    let width = model.settings.required_size("expert_feed_forward_length")?;
    // Sigmoids.
    model.settings.only("expert_gating_func", &[2.0])?;
    let [experts, per_token] = model.experts(width)?;
    model.layers_that(|layer| layer < dense, &MLP)?;
    model.layers_that(|layer| layer >= dense, &EXPERTS)?;
    model.set(json!({
        "num_dense_layers": dense, "num_experts": experts, "num_experts_per_tok": per_token,
        "moe_intermediate_size": width,
        // No key says these, and no released model has them otherwise.
        "use_expert_bias": true, "norm_topk_prob": true, "routed_scaling_factor": 1.0,
    }));
    Ok(())
}
