//! Gemma 1 to 3. The file has one more than the weights of norms.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::{Dim, Line, line},
    model::{Family, Model},
    tables::{ATTENTION, ATTENTION_BIASES, HEAD_NORMS, MLP, NORMS, less_one},
};

pub(super) const GEMMA: Family = Family { name: "gemma", model_type: "gemma", class: "GemmaForCausalLM", read: gemma };

pub(super) const GEMMA2: Family =
    Family { name: "gemma2", model_type: "gemma2", class: "Gemma2ForCausalLM", read: gemma2 };

pub(super) const GEMMA3: Family =
    Family { name: "gemma3", model_type: "gemma3_text", class: "Gemma3ForCausalLM", read: gemma3 };

/// Norms before and after both parts of a layer.
const ALL_NORMS: [Line; 4] = less_one([
    line("attn_norm.weight", "input_layernorm.weight", &[Dim::Hidden]),
    line("post_attention_norm.weight", "post_attention_layernorm.weight", &[Dim::Hidden]),
    line("ffn_norm.weight", "pre_feedforward_layernorm.weight", &[Dim::Hidden]),
    line("post_ffw_norm.weight", "post_feedforward_layernorm.weight", &[Dim::Hidden]),
]);

/// Layers by which llama.cpp tells the models of 27B, which divide scores by the root of what a head would be wide if all of
/// a state were heads; all others by that of a head's width. No key says it.
const LAYERS_OF_27B: [usize; 2] = [46, 62];

fn common(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.decoder()?;
    model.norm_less_one();
    model.intermediate()?;
    model.layer(&ATTENTION)?;
    model.layer(&MLP)?;
    let bias = model.attention_biases(&ATTENTION_BIASES)?;
    // Older releases of transformers read the one, newer ones the other.
    let gelu = "gelu_pytorch_tanh";
    model.set(json!({"attention_bias": bias, "hidden_act": gelu, "hidden_activation": gelu}));
    Ok(())
}

fn gemma(model: &mut Model<'_>) -> Result<(), GgufError> {
    common(model)?;
    model.layer(&less_one(NORMS))
}

/// What scores are divided by, squared.
fn scalar(model: &Model<'_>, layers_of_27b: usize) -> usize {
    let [hidden, heads, head] = [Dim::Hidden, Dim::Heads, Dim::Head].map(|dim| model.sizes.get(dim));
    if model.layers() == layers_of_27b { hidden / heads } else { head }
}

fn gemma2(model: &mut Model<'_>) -> Result<(), GgufError> {
    common(model)?;
    model.layer(&ALL_NORMS)?;
    let window = model.settings.required_size("attention.sliding_window")?;
    // What is not capped is a cap of 0 here.
    let cap = |name: &str| Ok::<_, GgufError>(Some(model.settings.required_float(name)?).filter(|cap| *cap != 0.0));
    let caps = [cap("attn_logit_softcapping")?, cap("final_logit_softcapping")?];
    model.set(json!({
        "query_pre_attn_scalar": scalar(model, LAYERS_OF_27B[0]), "sliding_window": window,
        "attn_logit_softcapping": caps[0], "final_logit_softcapping": caps[1],
    }));
    Ok(())
}

fn gemma3(model: &mut Model<'_>) -> Result<(), GgufError> {
    common(model)?;
    model.layer(&ALL_NORMS)?;
    model.layer(&less_one(HEAD_NORMS))?;
    let window = model.settings.required_size("attention.sliding_window")?;
    let cap = model.settings.float("final_logit_softcapping")?.filter(|cap| *cap != 0.0);
    let local = model.settings.float("rope.freq_base_swa")?.unwrap_or(10_000.0);
    model.set(json!({
        "query_pre_attn_scalar": scalar(model, LAYERS_OF_27B[1]), "sliding_window": window,
        "sliding_window_pattern": 6, "final_logit_softcapping": cap, "rope_local_base_freq": local,
    }));
    Ok(())
}
