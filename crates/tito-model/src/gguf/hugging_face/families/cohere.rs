//! Cohere's Command R and Command A: attention and feed-forward parts read the same.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::{Dim, Line, line},
    model::{Family, Model},
    tables::{ATTENTION, ATTENTION_BIASES, ENDS, MLP},
};

pub(super) const COMMAND_R: Family =
    Family { name: "command-r", model_type: "cohere", class: "CohereForCausalLM", read: command_r };

pub(super) const COHERE2: Family =
    Family { name: "cohere2", model_type: "cohere2", class: "Cohere2ForCausalLM", read: cohere2 };

const NORM: [Line; 1] = [line("attn_norm.weight", "input_layernorm.weight", &[Dim::Hidden])];

/// Norms of each head, with weights of its own.
const HEAD_NORMS: [Line; 2] = [
    line("attn_q_norm.weight", "self_attn.q_norm.weight", &[Dim::Heads, Dim::Head]),
    line("attn_k_norm.weight", "self_attn.k_norm.weight", &[Dim::KeyHeads, Dim::Head]),
];

/// Which layers have no window, and no positions: every fourth, wherever such a file is computed.
const INTERVAL: usize = 4;

fn parallel(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.sizes_and_rope()?;
    model.rotates_whole_heads()?;
    let epsilon = model.settings.required_epsilon("attention.layer_norm_epsilon")?;
    let scale = model.settings.required_factor("logit_scale")?;
    model.ends_and_head(&ENDS);
    model.intermediate()?;
    for lines in [&NORM[..], &ATTENTION, &MLP] {
        model.layer(lines)?;
    }
    model.set(json!({"layer_norm_eps": epsilon, "logit_scale": scale}));
    Ok(())
}

fn command_r(model: &mut Model<'_>) -> Result<(), GgufError> {
    parallel(model)?;
    let bias = model.attention_biases(&ATTENTION_BIASES)?;
    let normed = model.has("blk.0.attn_q_norm.weight");
    if normed {
        model.layer(&HEAD_NORMS)?;
    }
    model.set(json!({"attention_bias": bias, "use_qk_norm": normed}));
    Ok(())
}

fn cohere2(model: &mut Model<'_>) -> Result<(), GgufError> {
    parallel(model)?;
    let window = model.settings.required_size("attention.sliding_window")?;
    let full = |layer: usize| (layer + 1).is_multiple_of(INTERVAL);
    let kind = |layer| if full(layer) { "full_attention" } else { "sliding_attention" };
    let kinds: Vec<&str> = (0..model.layers()).map(kind).collect();
    model.set(json!({"attention_bias": false, "sliding_window": window, "layer_types": kinds}));
    Ok(())
}
