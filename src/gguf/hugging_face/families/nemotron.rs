//! The mixtures of Nemotron 3: each layer is Mamba 2, attention without positions or a mixture.

use serde_json::json;

use super::{
    super::{
        super::GgufError,
        lines::{Dim, Line, each, line},
        model::{Family, Model},
    },
    hybrid::{Recurrence, attending, first_has, recurrence},
};

pub(super) const NEMOTRON_H_MOE: Family =
    Family { name: "nemotron_h_moe", model_type: "nemotron_h", class: "NemotronHForCausalLM", read };

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

const MAMBA: [Line; 7] = [
    line("ssm_in.weight", "mixer.in_proj.weight", &[Dim::RecurrentInputs, Dim::Hidden]),
    line("ssm_conv1d.weight", "mixer.conv1d.weight", &[Dim::Channels, Dim::One, Dim::Taps])
        .reshaped(&[Dim::Channels, Dim::Taps]),
    line("ssm_dt.bias", "mixer.dt_bias", &[Dim::RecurrentHeads]),
    line("ssm_a", "mixer.A_log", &[Dim::RecurrentHeads]).reshaped(&[Dim::RecurrentHeads, Dim::One]).logarithm(),
    line("ssm_d", "mixer.D", &[Dim::RecurrentHeads]).reshaped(&[Dim::RecurrentHeads, Dim::One]),
    line("ssm_norm.weight", "mixer.norm.weight", &[Dim::Inner]).reshaped(&[Dim::NormGroups, Dim::NormGroup]),
    line("ssm_out.weight", "mixer.out_proj.weight", &[Dim::Hidden, Dim::Inner]),
];

const CONVOLUTION_BIAS: [Line; 1] = [line("ssm_conv1d.bias", "mixer.conv1d.bias", &[Dim::Channels])];

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

fn read(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.layers_are_called("backbone.layers.");
    let attending = attending(model)?;
    // Nothing is rotated, and how wide a mixture is the experts say.
    model.settings.ignore(&["rope.dimension_count", "rope.freq_base", "feed_forward_length"]);
    let epsilon = model.settings.required_float("attention.layer_norm_epsilon")?;
    model.set(json!({"layer_norm_epsilon": epsilon, "attention_bias": false, "mlp_hidden_act": "relu2"}));
    model.ends_and_head(&ENDS);
    model.layer(&NORM)?;
    model.layers_that(|layer| attending[layer], &ATTENTION)?;
    let recurs: Vec<bool> = (0..model.layers()).map(|layer| model.has(&format!("blk.{layer}.ssm_a"))).collect();
    mamba(model, &recurs)?;
    let kind = |layer: usize| match (attending[layer], recurs[layer]) {
        (true, _) => "attention",
        (false, true) => "mamba",
        (false, false) => "moe",
    };
    let kinds: Vec<&str> = (0..model.layers()).map(kind).collect();
    model.set(json!({"layers_block_type": kinds}));
    mixtures(model, |layer| !attending[layer] && !recurs[layer])
}

fn mamba(model: &mut Model<'_>, recurs: &[bool]) -> Result<(), GgufError> {
    let Recurrence { heads, value, key, groups, taps, .. } = recurrence(model)?;
    model.layers_that(|layer| recurs[layer], &MAMBA)?;
    let bias = first_has(model, (0..recurs.len()).filter(|layer| recurs[*layer]), "ssm_conv1d.bias");
    if bias {
        model.layers_that(|layer| recurs[layer], &CONVOLUTION_BIAS)?;
    }
    model.set(json!({
        "mamba_num_heads": heads, "mamba_head_dim": value, "ssm_state_size": key, "n_groups": groups,
        "conv_kernel": taps, "use_conv_bias": bias, "use_bias": false,
    }));
    Ok(())
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
        "routed_scaling_factor": model.settings.required_float("expert_weights_scale")?,
    });
    model.set(more);
    Ok(())
}
