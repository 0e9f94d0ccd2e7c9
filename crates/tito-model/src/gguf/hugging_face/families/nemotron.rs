//! Nemotron-H and the mixtures of Nemotron 3: each layer is Mamba 2, attention without positions, a feed-forward part or a
//! mixture.

use serde_json::json;

use super::{
    super::{
        super::GgufError,
        lines::{Dim, Line, each, line},
        model::{Family, Model},
        tables::rotary,
    },
    hybrid::{MAMBA_NORM, Mamba, Recurrence, attending, first_has, mamba, recurring},
};

pub(super) const NEMOTRON_H_MOE: Family =
    Family { name: "nemotron_h_moe", model_type: "nemotron_h", class: "NemotronHForCausalLM", read: mixture };

pub(super) const NEMOTRON_H: Family =
    Family { name: "nemotron_h", model_type: "nemotron_h", class: "NemotronHForCausalLM", read: dense };

const ENDS: [Line; 2] = [
    line("token_embd.weight", "backbone.embeddings.weight", &[Dim::Vocab, Dim::Hidden]),
    line("output_norm.weight", "backbone.norm_f.weight", &[Dim::Hidden]),
];

const NORM: [Line; 1] = [line("attn_norm.weight", "norm.weight", &[Dim::Hidden])];

const ATTENTION: [Line; 4] = [
    line("attn_q.weight", "mixer.q_proj.weight", &[Dim::Queries, Dim::Hidden]),
    line("attn_k.weight", "mixer.k_proj.weight", &[Dim::Keys, Dim::Hidden]),
    line("attn_v.weight", "mixer.v_proj.weight", &[Dim::Keys, Dim::Hidden]),
    line("attn_output.weight", "mixer.o_proj.weight", &[Dim::Hidden, Dim::Queries]),
];

const DENSE: [Line; 2] = [
    line("ffn_up.weight", "mixer.up_proj.weight", &[Dim::Intermediate, Dim::Hidden]),
    line("ffn_down.weight", "mixer.down_proj.weight", &[Dim::Hidden, Dim::Intermediate]),
];

const DENSE_BIASES: [Line; 2] = [
    line("ffn_up.bias", "mixer.up_proj.bias", &[Dim::Intermediate]),
    line("ffn_down.bias", "mixer.down_proj.bias", &[Dim::Hidden]),
];

const EXPERTS: [Line; 6] = [
    line("ffn_gate_inp.weight", "mixer.gate.weight", &[Dim::Experts, Dim::Hidden]),
    line("exp_probs_b.bias", "mixer.gate.e_score_correction_bias", &[Dim::Experts]),
    each("ffn_up_exps.weight", Dim::Experts, "mixer.experts.{}.up_proj.weight", &[Dim::Expert, Dim::ExpertState]),
    each("ffn_down_exps.weight", Dim::Experts, "mixer.experts.{}.down_proj.weight", &[Dim::ExpertState, Dim::Expert]),
    line("ffn_up_shexp.weight", "mixer.shared_experts.up_proj.weight", &[Dim::Shared, Dim::Hidden]),
    line("ffn_down_shexp.weight", "mixer.shared_experts.down_proj.weight", &[Dim::Hidden, Dim::Shared]),
];

const COMPRESSION: [Line; 2] = [
    line("ffn_latent_down.weight", "mixer.fc1_latent_proj.weight", &[Dim::ExpertState, Dim::Hidden]),
    line("ffn_latent_up.weight", "mixer.fc2_latent_proj.weight", &[Dim::Hidden, Dim::ExpertState]),
];

fn mixture(model: &mut Model<'_>) -> Result<(), GgufError> {
    // How wide a mixture is the experts say.
    model.settings.ignore(&["feed_forward_length"]);
    let others = hybrid(model, "moe")?;
    mixtures(model, |layer| others[layer])
}

fn dense(model: &mut Model<'_>) -> Result<(), GgufError> {
    let others = hybrid(model, "mlp")?;
    let widths = model.settings.sizes("feed_forward_length", model.layers())?;
    let width = widths.iter().copied().max().unwrap_or(0);
    if widths.iter().zip(&others).any(|(own, dense)| *own != if *dense { width } else { 0 }) {
        let key = model.settings.key("feed_forward_length");
        return Err(GgufError::Invalid { key, expected: "0 or one width for each layer" });
    }
    model.sizes.set([(Dim::Intermediate, width)]);
    let is_dense = |layer: usize| others[layer];
    model.layers_that(is_dense, &DENSE)?;
    let bias = first_has(model, (0..others.len()).filter(|layer| is_dense(*layer)), "ffn_up.bias");
    if bias {
        model.layers_that(is_dense, &DENSE_BIASES)?;
    }
    model.set(json!({"intermediate_size": width, "mlp_bias": bias}));
    Ok(())
}

/// Layers that attend and those with a recurrent state. For each it is returned whether it is one of the others, which are of
/// this kind.
fn hybrid(model: &mut Model<'_>, kind_of_others: &'static str) -> Result<Vec<bool>, GgufError> {
    model.layers_are_called("backbone.layers.");
    let attending = attending(model)?;
    model.settings.ignore(&["rope.dimension_count", "rope.freq_base"]);
    let epsilon = model.settings.required_epsilon("attention.layer_norm_epsilon")?;
    model.set(json!({"layer_norm_epsilon": epsilon, "attention_bias": false, "mlp_hidden_act": "relu2"}));
    model.ends_and_head(&ENDS);
    model.layer(&NORM)?;
    // Nothing is rotated, and the converter interleaves halves all the same.
    model.layers_that(|layer| attending[layer], &rotary(ATTENTION))?;
    let recurs = recurring(model);
    let Mamba { sizes, convolution_bias, bias } = mamba(model, &recurs, "mixer.")?;
    model.layers_under(|layer| recurs[layer], "mixer.", &[MAMBA_NORM])?;
    let kind = |layer: usize| match (attending[layer], recurs[layer]) {
        (true, _) => "attention",
        (false, true) => "mamba",
        (false, false) => kind_of_others,
    };
    let kinds: Vec<&str> = (0..model.layers()).map(kind).collect();
    let Recurrence { heads, value, key, groups, taps, .. } = sizes;
    model.set(json!({
        "layers_block_type": kinds, "mamba_num_heads": heads, "mamba_head_dim": value, "ssm_state_size": key,
        "n_groups": groups, "conv_kernel": taps, "use_conv_bias": convolution_bias, "use_bias": bias,
    }));
    Ok((0..model.layers()).map(|layer| !attending[layer] && !recurs[layer]).collect())
}

fn mixtures(model: &mut Model<'_>, is_mixture: impl Fn(usize) -> bool) -> Result<(), GgufError> {
    let width = model.settings.required_size("expert_feed_forward_length")?;
    let shared = model.settings.required_size("expert_shared_feed_forward_length")?;
    let [experts, per_token] = model.experts(width)?;
    model.settings.only("expert_shared_count", &[1.0])?;
    // Sigmoids.
    model.settings.only("expert_gating_func", &[2.0])?;
    let latent = model.settings.size("moe_latent_size")?;
    let state = latent.unwrap_or(model.sizes.get(Dim::Hidden));
    model.sizes.set([(Dim::Shared, shared), (Dim::ExpertState, state)]);
    model.layers_that(&is_mixture, &EXPERTS)?;
    if latent.is_some() {
        model.layers_that(&is_mixture, &COMPRESSION)?;
    }
    let count = |name: &str| model.settings.size(name).map(|count| count.unwrap_or(1));
    let more = json!({
        "n_routed_experts": experts, "num_experts_per_tok": per_token, "moe_intermediate_size": width,
        "n_shared_experts": 1, "moe_shared_expert_intermediate_size": shared, "moe_latent_size": latent,
        "n_group": count("expert_group_count")?, "topk_group": count("expert_group_used_count")?,
        "norm_topk_prob": model.settings.flag("expert_weights_norm")?.unwrap_or(true),
        "routed_scaling_factor": model.settings.required_factor("expert_weights_scale")?,
    });
    model.set(more);
    Ok(())
}
