//! Gemma 4, the text of it: layers without a window have wider heads, the last layers attend to the keys of others, and each
//! may have an input of its own.

use serde_json::{Value, json};

use super::super::{
    super::{GgufError, stored::read_vector},
    lines::{Dim, Line, line},
    model::{Family, Model},
    rope::{self, ROPE_FACTORS},
    tables::{ATTENTION, ATTENTION_BIASES, HEAD_NORMS, MLP},
};

pub(super) const GEMMA4: Family =
    Family { name: "gemma4", model_type: "gemma4_text", class: "Gemma4ForCausalLM", read: gemma4 };

/// What the frequencies are divided by that do not turn.
const STILL: f32 = 1e30;

const LAYER: [Line; 5] = [
    line("attn_norm.weight", "input_layernorm.weight", &[Dim::Hidden]),
    line("post_attention_norm.weight", "post_attention_layernorm.weight", &[Dim::Hidden]),
    line("ffn_norm.weight", "pre_feedforward_layernorm.weight", &[Dim::Hidden]),
    line("post_ffw_norm.weight", "post_feedforward_layernorm.weight", &[Dim::Hidden]),
    line("layer_output_scale.weight", "layer_scalar", &[Dim::One]),
];

/// Attention of the layers without a window.
const WIDE_ATTENTION: [Line; 4] = [
    line("attn_q.weight", "self_attn.q_proj.weight", &[Dim::WideQueries, Dim::Hidden]),
    line("attn_k.weight", "self_attn.k_proj.weight", &[Dim::WideKeys, Dim::Hidden]),
    line("attn_v.weight", "self_attn.v_proj.weight", &[Dim::WideKeys, Dim::Hidden]),
    line("attn_output.weight", "self_attn.o_proj.weight", &[Dim::Hidden, Dim::WideQueries]),
];

const WIDE_BIASES: [Line; 4] = [
    line("attn_q.bias", "self_attn.q_proj.bias", &[Dim::WideQueries]),
    line("attn_k.bias", "self_attn.k_proj.bias", &[Dim::WideKeys]),
    line("attn_v.bias", "self_attn.v_proj.bias", &[Dim::WideKeys]),
    line("attn_output.bias", "self_attn.o_proj.bias", &[Dim::Hidden]),
];

const WIDE_NORMS: [Line; 2] = [
    line("attn_q_norm.weight", "self_attn.q_norm.weight", &[Dim::WideHead]),
    line("attn_k_norm.weight", "self_attn.k_norm.weight", &[Dim::WideHead]),
];

/// The feed-forward part of the layers with keys of others, where it is wider.
const WIDE_MLP: [Line; 3] = [
    line("ffn_gate.weight", "mlp.gate_proj.weight", &[Dim::WideIntermediate, Dim::Hidden]),
    line("ffn_up.weight", "mlp.up_proj.weight", &[Dim::WideIntermediate, Dim::Hidden]),
    line("ffn_down.weight", "mlp.down_proj.weight", &[Dim::Hidden, Dim::WideIntermediate]),
];

const INPUTS: [Line; 3] = [
    line("per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight", &[Dim::InputVocab, Dim::Inputs]),
    line("per_layer_model_proj.weight", "model.per_layer_model_projection.weight", &[Dim::Inputs, Dim::Hidden]),
    line("per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight", &[Dim::Input]),
];

const INPUT: [Line; 3] = [
    line("inp_gate.weight", "per_layer_input_gate.weight", &[Dim::Input, Dim::Hidden]),
    line("proj.weight", "per_layer_projection.weight", &[Dim::Hidden, Dim::Input]),
    line("post_norm.weight", "post_per_layer_input_norm.weight", &[Dim::Hidden]),
];

/// The mixture beside the feed-forward part.
const EXPERTS: [Line; 7] = [
    line("ffn_gate_inp.weight", "router.proj.weight", &[Dim::Experts, Dim::Hidden]),
    line("ffn_gate_inp.scale", "router.scale", &[Dim::Hidden]),
    line("ffn_down_exps.scale", "router.per_expert_scale", &[Dim::Experts]),
    line("ffn_down_exps.weight", "experts.down_proj", &[Dim::Experts, Dim::Hidden, Dim::Expert]),
    line("pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight", &[Dim::Hidden]),
    line("post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight", &[Dim::Hidden]),
    line("post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight", &[Dim::Hidden]),
];

/// Which layers have a window, and from which on they attend to the keys of others.
struct Kinds {
    slides: Vec<bool>,
    own: usize,
}

fn gemma4(model: &mut Model<'_>) -> Result<(), GgufError> {
    let kinds = sizes(model)?;
    ropes(model)?;
    model.ends()?;
    model.layer(&LAYER)?;
    attention(model, &kinds)?;
    feed_forward(model, &kinds)?;
    inputs(model)?;
    let cap = model.settings.float("final_logit_softcapping")?.filter(|cap| *cap != 0.0);
    let gelu = "gelu_pytorch_tanh";
    model.set(json!({"final_logit_softcapping": cap, "hidden_act": gelu, "hidden_activation": gelu}));
    mixtures(model)
}

/// Heads of both kinds of layers.
fn sizes(model: &mut Model<'_>) -> Result<Kinds, GgufError> {
    let [head, wide] =
        ["attention.key_length_swa", "attention.key_length"].map(|name| model.settings.required_size(name));
    let (head, wide) = (head?, wide?);
    for (name, expected) in [("attention.value_length_swa", head), ("attention.value_length", wide)] {
        if model.settings.required_size(name)? != expected {
            return Err(GgufError::Unsupported(format!("`{}` is not {expected}", model.settings.key(name))));
        }
    }
    // How many layers there are is believed from here on.
    model.sizes_with(Some(head), None)?;
    let missing = |name: &str| GgufError::Missing(model.settings.key(name));
    let pattern = "attention.sliding_window_pattern";
    let kinds = model.layer_types()?.ok_or_else(|| missing(pattern))?;
    let slides: Vec<bool> = kinds.iter().map(|kind| *kind == "sliding_attention").collect();
    let heads = model.settings.sizes("attention.head_count_kv", model.layers())?;
    let of_kind =
        |slide: bool| heads.iter().zip(&slides).find(|(_, slides)| **slides == slide).map(|(heads, _)| *heads);
    let (Some(key_heads), Some(wide_heads)) = (of_kind(true), of_kind(false)) else {
        let key = model.settings.key(pattern);
        return Err(GgufError::Invalid { key, expected: "layers of both kinds" });
    };
    if heads.iter().zip(&slides).any(|(own, slides)| *own != if *slides { key_heads } else { wide_heads }) {
        let key = model.settings.key("attention.head_count_kv");
        return Err(GgufError::Invalid { key, expected: "the same in all layers of a kind" });
    }
    model.sizes_with(Some(head), Some(key_heads))?;
    let queries = model.sizes.get(Dim::Heads);
    model.sizes.set([
        (Dim::WideHead, wide),
        (Dim::WideQueries, queries.saturating_mul(wide)),
        (Dim::WideKeys, wide_heads.saturating_mul(wide)),
    ]);
    let shared = model.settings.size("attention.shared_kv_layers")?.unwrap_or(0);
    let own = model.layers().checked_sub(shared).ok_or_else(|| GgufError::Invalid {
        key: model.settings.key("attention.shared_kv_layers"),
        expected: "at most the number of layers",
    })?;
    let window = model.settings.required_size("attention.sliding_window")?;
    model.set(json!({
        "global_head_dim": wide, "num_global_key_value_heads": wide_heads, "num_kv_shared_layers": shared,
        "sliding_window": window, "layer_types": kinds,
    }));
    Ok(Kinds { slides, own })
}

/// The rotary embeddings of both kinds: in the layers without a window some frequencies stand still.
fn ropes(model: &mut Model<'_>) -> Result<(), GgufError> {
    let rope = rope::read(&model.settings)?;
    if rope.scaling != Value::Null {
        let key = model.settings.key("rope.scaling.type");
        return Err(GgufError::Unsupported(format!("`{key}` is not none")));
    }
    let local = model.settings.required_float("rope.freq_base_swa")?;
    for (name, dim) in [("rope.dimension_count", Dim::WideHead), ("rope.dimension_count_swa", Dim::Head)] {
        let width = model.sizes.get(dim);
        if model.settings.required_size(name)? != width {
            return Err(GgufError::Unsupported(format!("`{}` is not {width}", model.settings.key(name))));
        }
    }
    let factors = read_vector(model.file, ROPE_FACTORS)?;
    let pairs = model.sizes.get(Dim::WideHead) / 2;
    let turning = factors.iter().take_while(|factor| factor.to_bits() == 1.0_f32.to_bits()).count();
    if factors.len() != pairs || factors[turning..].iter().any(|factor| factor.to_bits() != STILL.to_bits()) {
        let reason = format!("`{ROPE_FACTORS}` is not 1 for some of {pairs} frequencies and 1e30 for all after them");
        return Err(GgufError::Unsupported(reason));
    }
    model.unused(ROPE_FACTORS);
    #[expect(clippy::cast_precision_loss, reason = "heads are small")]
    let part = turning as f64 / pairs as f64;
    model.set(json!({"rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": part, "rope_theta": rope.theta},
        "sliding_attention": {"rope_type": "default", "rope_theta": local},
    }}));
    Ok(())
}

fn attention(model: &mut Model<'_>, Kinds { slides, own }: &Kinds) -> Result<(), GgufError> {
    let full = || (0..*own).filter(|layer| !slides[*layer]);
    // Where layers without a window have no values, their keys are the values.
    let lacks_values = |layer: usize| !model.has(&format!("blk.{layer}.attn_v.weight"));
    let keys_are_values = full().next().is_some_and(lacks_values);
    let bias = model.has("blk.0.attn_q.bias");
    for (slide, attention, biases, norms) in
        [(true, &ATTENTION, &ATTENTION_BIASES, &HEAD_NORMS), (false, &WIDE_ATTENTION, &WIDE_BIASES, &WIDE_NORMS)]
    {
        for (lines, few) in [(attention, false), (biases, true)] {
            if few && !bias {
                continue;
            }
            let [queries, keys, values, output] = *lines;
            model.layers_that(|layer| slides[layer] == slide, &[queries, output])?;
            model.layers_that(|layer| slides[layer] == slide && layer < *own, &[keys])?;
            if slide || !keys_are_values {
                model.layers_that(|layer| slides[layer] == slide && layer < *own, &[values])?;
            }
        }
        let [queries, keys] = *norms;
        model.layers_that(|layer| slides[layer] == slide, &[queries])?;
        model.layers_that(|layer| slides[layer] == slide && layer < *own, &[keys])?;
    }
    // Checkpoints may have keys and values of layers that attend to others'.
    for layer in *own..slides.len() {
        for name in ["attn_k.weight", "attn_v.weight", "attn_k_norm.weight"] {
            model.unused(format!("blk.{layer}.{name}"));
        }
    }
    model.set(json!({"attention_bias": bias, "attention_k_eq_v": keys_are_values}));
    Ok(())
}

/// Dense feed-forward parts, which may be twice as wide where layers attend to the keys of others.
fn feed_forward(model: &mut Model<'_>, Kinds { own, .. }: &Kinds) -> Result<(), GgufError> {
    let name = "feed_forward_length";
    let widths = model.settings.sizes(name, model.layers())?;
    let width = widths.first().copied().unwrap_or(0);
    let double = width.saturating_mul(2);
    let is_wide = *own < widths.len() && widths.last() == Some(&double);
    let wide = |layer: usize| is_wide && layer >= *own;
    if widths.iter().enumerate().any(|(layer, found)| *found != if wide(layer) { double } else { width }) {
        let expected = "one width, or twice as much in the layers with keys of others";
        return Err(GgufError::Invalid { key: model.settings.key(name), expected });
    }
    model.sizes.set([(Dim::Intermediate, width), (Dim::WideIntermediate, double)]);
    model.layers_that(|layer| !wide(layer), &MLP)?;
    model.layers_that(wide, &WIDE_MLP)?;
    model.set(json!({"intermediate_size": width, "use_double_wide_mlp": is_wide}));
    Ok(())
}

/// Inputs of the layers' own.
fn inputs(model: &mut Model<'_>) -> Result<(), GgufError> {
    let width = model.settings.size("embedding_length_per_layer_input")?.unwrap_or(0);
    model.set(json!({"hidden_size_per_layer_input": width}));
    if width == 0 {
        return Ok(());
    }
    let rows =
        model.file.content.tensors.get("per_layer_token_embd.weight").and_then(|info| info.shape.first().copied());
    let vocab = rows.unwrap_or(model.sizes.get(Dim::Vocab));
    model.sizes.set([
        (Dim::Input, width),
        (Dim::Inputs, width.saturating_mul(model.layers())),
        (Dim::InputVocab, vocab),
    ]);
    model.top(&INPUTS);
    model.layer(&INPUT)?;
    model.set(json!({"vocab_size_per_layer_input": vocab}));
    Ok(())
}

fn mixtures(model: &mut Model<'_>) -> Result<(), GgufError> {
    let has = model.settings.size("expert_count")?.unwrap_or(0) > 0;
    model.set(json!({"enable_moe_block": has}));
    if !has {
        return Ok(());
    }
    let width = model.settings.required_size("expert_feed_forward_length")?;
    let [experts, per_token] = model.experts(width)?;
    let gate_up = model.gate_up_of_experts(0, "experts.gate_up_proj");
    model.layer(&EXPERTS)?;
    model.layer(&[gate_up])?;
    model.set(json!({"num_experts": experts, "top_k_experts": per_token, "moe_intermediate_size": width}));
    Ok(())
}
