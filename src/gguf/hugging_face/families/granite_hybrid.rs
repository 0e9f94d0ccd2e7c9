//! The hybrids of Granite 4: Mamba 2 beside attention, each with a feed-forward part or a mixture.

use serde_json::json;

use super::{
    super::{
        super::GgufError,
        lines::{Dim, Line, Table, grouped, line},
        model::{ATTENTION, ATTENTION_BIASES, Family, Model, NORMS, rotary},
        rope,
    },
    granite::{experts, factors},
    hybrid::{Recurrence, attending, first_has, recurrence},
};

pub(super) const GRANITE_HYBRID: Family = Family {
    name: "granitehybrid",
    model_type: "granitemoehybrid",
    class: "GraniteMoeHybridForCausalLM",
    read: hybrid,
};

const MAMBA: [Line; 7] = [
    line("ssm_in.weight", "mamba.in_proj.weight", &[Dim::RecurrentInputs, Dim::Hidden]),
    line("ssm_conv1d.weight", "mamba.conv1d.weight", &[Dim::Channels, Dim::One, Dim::Taps])
        .reshaped(&[Dim::Channels, Dim::Taps]),
    line("ssm_dt.bias", "mamba.dt_bias", &[Dim::RecurrentHeads]),
    line("ssm_a", "mamba.A_log", &[Dim::RecurrentHeads]).reshaped(&[Dim::RecurrentHeads, Dim::One]).logarithm(),
    line("ssm_d", "mamba.D", &[Dim::RecurrentHeads]).reshaped(&[Dim::RecurrentHeads, Dim::One]),
    line("ssm_norm.weight", "mamba.norm.weight", &[Dim::Inner]).reshaped(&[Dim::NormGroups, Dim::NormGroup]),
    line("ssm_out.weight", "mamba.out_proj.weight", &[Dim::Hidden, Dim::Inner]),
];

const CONVOLUTION_BIAS: [Line; 1] = [line("ssm_conv1d.bias", "mamba.conv1d.bias", &[Dim::Channels])];

const MAMBA_BIASES: [Line; 2] = [
    line("ssm_in.bias", "mamba.in_proj.bias", &[Dim::RecurrentInputs]),
    line("ssm_out.bias", "mamba.out_proj.bias", &[Dim::Hidden]),
];

const GATE_UP: Table = Table {
    count: Dim::One,
    parts: &[
        ("ffn_gate.weight", &[Dim::Shared, Dim::Hidden], (Dim::Hidden, false)),
        ("ffn_up.weight", &[Dim::Shared, Dim::Hidden], (Dim::Hidden, false)),
    ],
    alternate: false,
    turned: false,
};

/// A feed-forward part has the names of the one that all tokens go through, where there are no experts.
const DENSE: [Line; 2] = [
    grouped(&GATE_UP, "shared_mlp.input_linear.weight", &[Dim::SharedGateUp, Dim::Hidden]),
    line("ffn_down.weight", "shared_mlp.output_linear.weight", &[Dim::Hidden, Dim::Shared]),
];

fn hybrid(model: &mut Model<'_>) -> Result<(), GgufError> {
    let attending = attending(model)?;
    let rope = rope::read(&model.settings)?;
    // What llama.cpp takes for granted where it is not said.
    let rotates = model.settings.flag("rope.scaling.finetuned")?.unwrap_or(true);
    model.set(json!({
        "rope_theta": rope.theta, "rope_scaling": rope.scaling,
        "position_embedding_type": if rotates { "rope" } else { "nope" },
    }));
    if rotates && model.rotated()?.is_some_and(|rotated| rotated != model.sizes.get(Dim::Head)) {
        let key = model.settings.key("rope.dimension_count");
        return Err(GgufError::Unsupported(format!("`{key}` is not the size of a head")));
    }
    model.settings.ignore(&["rope.dimension_count"]);
    model.ends()?;
    model.intermediate()?;
    factors(model)?;
    model.layer(&NORMS)?;
    attention(model, &attending)?;
    mamba(model, &attending)?;
    if model.settings.size("expert_count")?.unwrap_or(0) > 0 {
        return experts(model);
    }
    let width = model.settings.required_size("expert_shared_feed_forward_length")?;
    model.sizes.set([(Dim::Shared, width), (Dim::SharedGateUp, width.saturating_mul(2))]);
    model.set(json!({"num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": width}));
    model.layer(&DENSE)
}

fn attention(model: &mut Model<'_>, attending: &[bool]) -> Result<(), GgufError> {
    let attends = |layer: usize| attending[layer];
    model.layers_that(attends, &rotary(ATTENTION))?;
    let bias = first_has(model, (0..attending.len()).filter(|layer| attends(*layer)), "attn_q.bias");
    if bias {
        model.layers_that(attends, &rotary(ATTENTION_BIASES))?;
    }
    model.set(json!({"attention_bias": bias}));
    Ok(())
}

fn mamba(model: &mut Model<'_>, attending: &[bool]) -> Result<(), GgufError> {
    let Recurrence { heads, value, key, groups, inner, taps, .. } = recurrence(model)?;
    let recurs = |layer: usize| !attending[layer];
    let recurrent = || (0..attending.len()).filter(|layer| recurs(*layer));
    model.layers_that(recurs, &MAMBA)?;
    let convolution_bias = first_has(model, recurrent(), "ssm_conv1d.bias");
    if convolution_bias {
        model.layers_that(recurs, &CONVOLUTION_BIAS)?;
    }
    let bias = first_has(model, recurrent(), "ssm_in.bias");
    if bias {
        model.layers_that(recurs, &MAMBA_BIASES)?;
    }
    let kinds: Vec<&str> = attending.iter().map(|attends| if *attends { "attention" } else { "mamba" }).collect();
    model.set(json!({
        "layer_types": kinds, "mamba_n_heads": heads, "mamba_d_head": value, "mamba_d_state": key,
        "mamba_n_groups": groups, "mamba_d_conv": taps, "mamba_expand": inner / model.sizes.get(Dim::Hidden),
        "mamba_conv_bias": convolution_bias, "mamba_proj_bias": bias,
    }));
    Ok(())
}
