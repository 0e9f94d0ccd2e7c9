//! Kimi Linear: delta rules with a decay for every number of a key, beside latent attention without positions.

use serde_json::json;

use super::{
    super::{
        super::GgufError,
        lines::{Dim, Line, line},
        model::{Family, Model},
        tables::{EXPERTS_OF_MIXTRAL, MLP, NORMS},
    },
    deepseek::{latent, latent_layers, latent_sizes},
    hybrid::attending,
};

pub(super) const KIMI_LINEAR: Family =
    Family { name: "kimi-linear", model_type: "kimi_linear", class: "KimiLinearForCausalLM", read: kimi_linear };

const RECURRENT: [Line; 15] = [
    line("attn_q.weight", "self_attn.q_proj.weight", &[Dim::Inner, Dim::Hidden]),
    line("attn_k.weight", "self_attn.k_proj.weight", &[Dim::Inner, Dim::Hidden]),
    line("attn_v.weight", "self_attn.v_proj.weight", &[Dim::Inner, Dim::Hidden]),
    line("ssm_conv1d_q.weight", "self_attn.q_conv1d.weight", &[Dim::Inner, Dim::One, Dim::Taps]),
    line("ssm_conv1d_k.weight", "self_attn.k_conv1d.weight", &[Dim::Inner, Dim::One, Dim::Taps]),
    line("ssm_conv1d_v.weight", "self_attn.v_conv1d.weight", &[Dim::Inner, Dim::One, Dim::Taps]),
    line("ssm_f_a.weight", "self_attn.f_a_proj.weight", &[Dim::RecurrentValue, Dim::Hidden]),
    line("ssm_f_b.weight", "self_attn.f_b_proj.weight", &[Dim::Inner, Dim::RecurrentValue]),
    line("ssm_g_a.weight", "self_attn.g_a_proj.weight", &[Dim::RecurrentValue, Dim::Hidden]),
    line("ssm_g_b.weight", "self_attn.g_b_proj.weight", &[Dim::Inner, Dim::RecurrentValue]),
    line("ssm_beta.weight", "self_attn.b_proj.weight", &[Dim::Heads, Dim::Hidden]),
    line("ssm_a", "self_attn.A_log", &[Dim::One, Dim::One, Dim::Heads, Dim::One]).logarithm(),
    line("ssm_dt.bias", "self_attn.dt_bias", &[Dim::Inner]),
    line("ssm_norm.weight", "self_attn.o_norm.weight", &[Dim::RecurrentValue]),
    line("attn_output.weight", "self_attn.o_proj.weight", &[Dim::Hidden, Dim::Inner]),
];

const CHOICE_BIAS: Line = line("exp_probs_b.bias", "block_sparse_moe.gate.e_score_correction_bias", &[Dim::Experts]);

/// What every token goes through besides.
const SHARED: [Line; 3] = [
    line("ffn_gate_shexp.weight", "block_sparse_moe.shared_experts.gate_proj.weight", &[Dim::Shared, Dim::Hidden]),
    line("ffn_up_shexp.weight", "block_sparse_moe.shared_experts.up_proj.weight", &[Dim::Shared, Dim::Hidden]),
    line("ffn_down_shexp.weight", "block_sparse_moe.shared_experts.down_proj.weight", &[Dim::Hidden, Dim::Shared]),
];

fn kimi_linear(model: &mut Model<'_>) -> Result<(), GgufError> {
    // What is kept of a token is one head, in the layers that attend.
    let attending = attending(model)?;
    let attends = |layer: usize| attending[layer];
    let latent = latent(&model.settings)?;
    latent_sizes(model, &latent)?;
    // Nothing is rotated.
    model.settings.ignore(&["rope.freq_base"]);
    model.ends()?;
    model.layer(&NORMS)?;
    latent_layers(model, &latent, attends)?;
    let heads = model.sizes.get(Dim::Heads);
    let (width, taps) =
        (model.settings.required_size("kda.head_dim")?, model.settings.required_size("ssm.conv_kernel")?);
    model.sizes.set([(Dim::RecurrentValue, width), (Dim::Inner, heads.saturating_mul(width)), (Dim::Taps, taps)]);
    model.layers_that(|layer| !attends(layer), &RECURRENT)?;
    // These are counted from 1.
    let listed = |attend: bool| -> Vec<usize> {
        (0..attending.len()).filter(|layer| attends(*layer) == attend).map(|layer| layer + 1).collect()
    };
    model.set(json!({
        "linear_attn_config": {
            "full_attn_layers": listed(true), "kda_layers": listed(false), "num_heads": heads, "head_dim": width,
            "short_conv_kernel_size": taps,
        },
        "mla_use_nope": true,
    }));
    mixtures(model)
}

fn mixtures(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.intermediate()?;
    let settings = &model.settings;
    let width = settings.required_size("expert_feed_forward_length")?;
    let (dense, shared) =
        (settings.required_size("leading_dense_block_count")?, settings.required_size("expert_shared_count")?);
    let factor = settings.required_factor("expert_weights_scale")?;
    // Sigmoids.
    settings.only("expert_gating_func", &[2.0])?;
    let [experts, per_token] = model.experts(width)?;
    model.sizes.set([(Dim::Shared, width.saturating_mul(shared))]);
    let mixed = |layer: usize| layer >= dense;
    model.layers_that(|layer| !mixed(layer), &MLP)?;
    model.layers_that(mixed, &EXPERTS_OF_MIXTRAL)?;
    model.layers_that(mixed, &[CHOICE_BIAS])?;
    if shared > 0 {
        model.layers_that(mixed, &SHARED)?;
    }
    model.set(json!({
        "first_k_dense_replace": dense, "num_experts": experts, "num_experts_per_token": per_token,
        "moe_intermediate_size": width, "num_shared_experts": shared, "routed_scaling_factor": factor,
        "moe_router_activation_func": "sigmoid",
        // No key says these, and no released model has them otherwise.
        "moe_renormalize": true, "num_expert_group": 1, "topk_group": 1,
    }));
    Ok(())
}
