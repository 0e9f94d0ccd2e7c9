//! The hybrids of Granite 4: Mamba 2 beside attention, each with a feed-forward part or a mixture. Bamba came before them,
//! and has files of the same architecture.

use serde_json::json;

use super::{
    super::{
        super::GgufError,
        lines::{Dim, Line, Table, grouped, line},
        model::{Family, Model},
        rope,
        tables::{ATTENTION, ATTENTION_BIASES, FEED_FORWARD, FEED_FORWARD_BIASES, NORMS, rotary},
    },
    granite::{experts, factors},
    hybrid::{MAMBA_NORM, Mamba, Recurrence, attending, first_has, mamba},
};

pub(super) const GRANITE_HYBRID: Family = Family {
    name: "granitehybrid",
    model_type: "granitemoehybrid",
    class: "GraniteMoeHybridForCausalLM",
    read: hybrid,
};

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
    model.set(json!({"rope_theta": rope.theta, "rope_scaling": rope.scaling}));
    // Bamba has none of the factors that all of Granite have.
    if !model.settings.has("embedding_scale") {
        return bamba(model, &attending);
    }
    // What llama.cpp takes for granted where it is not said.
    let rotates = model.settings.flag("rope.scaling.finetuned")?.unwrap_or(true);
    model.set(json!({"position_embedding_type": if rotates { "rope" } else { "nope" }}));
    if rotates {
        model.rotates_whole_heads()?;
    }
    model.settings.ignore(&["rope.dimension_count"]);
    model.ends()?;
    model.intermediate()?;
    factors(model)?;
    model.layer(&NORMS)?;
    attention(model, &attending)?;
    recurrent(model, &attending)?;
    let kinds: Vec<&str> = attending.iter().map(|attends| if *attends { "attention" } else { "mamba" }).collect();
    model.set(json!({"layer_types": kinds}));
    if model.settings.size("expert_count")?.unwrap_or(0) > 0 {
        return experts(model);
    }
    let width = model.settings.required_size("expert_shared_feed_forward_length")?;
    model.sizes.set([(Dim::Shared, width), (Dim::SharedGateUp, width.saturating_mul(2))]);
    model.set(json!({"num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": width}));
    model.layer(&DENSE)
}

const BAMBA_ENDS: [Line; 2] = [
    line("token_embd.weight", "model.embed_tokens.weight", &[Dim::Vocab, Dim::Hidden]),
    line("output_norm.weight", "model.final_layernorm.weight", &[Dim::Hidden]),
];

const BAMBA_NORMS: [Line; 2] = [
    line("attn_norm.weight", "input_layernorm.weight", &[Dim::Hidden]),
    line("ffn_norm.weight", "pre_ff_layernorm.weight", &[Dim::Hidden]),
];

fn bamba(model: &mut Model<'_>, attending: &[bool]) -> Result<(), GgufError> {
    let head = model.sizes.get(Dim::Head);
    // Half of a head is rotated; converters write that, or a whole head.
    let rotated = model.rotated()?.unwrap_or(head);
    if model.settings.flag("rope.scaling.finetuned")? != Some(true) || ![head, head / 2].contains(&rotated) {
        let keys = ["rope.scaling.finetuned", "rope.dimension_count"].map(|name| model.settings.key(name));
        let reason = format!("`{}` or `{}` are not those of Bamba, and it has no factors of Granite", keys[0], keys[1]);
        return Err(GgufError::Unsupported(reason));
    }
    model.ends_with("rms_norm_eps", &BAMBA_ENDS)?;
    model.intermediate()?;
    model.layer(&BAMBA_NORMS)?;
    attention(model, attending)?;
    recurrent(model, attending)?;
    model.layer(&FEED_FORWARD)?;
    let bias = model.has("blk.0.ffn_gate.bias");
    if bias {
        model.layer(&FEED_FORWARD_BIASES)?;
    }
    let indices: Vec<usize> = (0..attending.len()).filter(|layer| attending[*layer]).collect();
    model.set(json!({
        "architectures": ["BambaForCausalLM"], "model_type": "bamba", "attn_layer_indices": indices, "mlp_bias": bias,
    }));
    Ok(())
}

/// The layers that attend.
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

/// All others.
fn recurrent(model: &mut Model<'_>, attending: &[bool]) -> Result<(), GgufError> {
    let recurs: Vec<bool> = attending.iter().map(|attends| !attends).collect();
    let Mamba { sizes, convolution_bias, bias } = mamba(model, &recurs, "mamba.")?;
    model.layers_under(|layer| recurs[layer], "mamba.", &[MAMBA_NORM])?;
    let Recurrence { heads, value, key, groups, inner, taps, .. } = sizes;
    model.set(json!({
        "mamba_n_heads": heads, "mamba_d_head": value, "mamba_d_state": key, "mamba_n_groups": groups,
        "mamba_d_conv": taps, "mamba_expand": inner / model.sizes.get(Dim::Hidden),
        "mamba_conv_bias": convolution_bias, "mamba_proj_bias": bias,
    }));
    Ok(())
}
