//! OLMo 2 and 3, and OLMoE.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::{Dim, Line, line},
    model::{Family, Model},
    tables::{ATTENTION, ATTENTION_BIASES, EXPERTS, MLP, NORMS, WHOLE_NORMS},
};

pub(super) const OLMO2: Family = Family { name: "olmo2", model_type: "olmo2", class: "Olmo2ForCausalLM", read: olmo2 };

pub(super) const OLMOE: Family = Family { name: "olmoe", model_type: "olmoe", class: "OlmoeForCausalLM", read: olmoe };

/// Norms after both parts of a layer only.
const AFTER: [Line; 2] = [
    line("post_attention_norm.weight", "post_attention_layernorm.weight", &[Dim::Hidden]),
    line("post_ffw_norm.weight", "post_feedforward_layernorm.weight", &[Dim::Hidden]),
];

fn attention(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.decoder()?;
    model.layer(&ATTENTION)?;
    model.layer(&WHOLE_NORMS)?;
    let bias = model.attention_biases(&ATTENTION_BIASES)?;
    model.set(json!({"attention_bias": bias}));
    Ok(())
}

/// One with windows is an OLMo 3, whose layers with a window do not scale their frequencies.
fn olmo2(model: &mut Model<'_>) -> Result<(), GgufError> {
    attention(model)?;
    model.intermediate()?;
    model.layer(&AFTER)?;
    model.layer(&MLP)?;
    let theta = model.settings.float("rope.freq_base")?;
    let (types, window) = (model.layer_types()?, model.window()?);
    let local = model.settings.float("rope.freq_base_swa")?;
    let Some(window) = window else { return Ok(()) };
    let (Some(types), Some(theta)) = (types, theta) else {
        let missing = ["attention.sliding_window_pattern", "rope.freq_base"].map(|name| model.settings.key(name));
        return Err(GgufError::Missing(missing.join("` or `")));
    };
    let local = json!({"rope_type": "default", "rope_theta": local.unwrap_or(theta)});
    let mut global = model.take_scaling().unwrap_or_else(|| json!({"rope_type": "default"}));
    global["rope_theta"] = json!(theta);
    model.set(json!({
        "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "sliding_window": window, "layer_types": types,
        "rope_parameters": {"full_attention": global, "sliding_attention": local},
    }));
    Ok(())
}

fn olmoe(model: &mut Model<'_>) -> Result<(), GgufError> {
    attention(model)?;
    let width = model.intermediate()?;
    let [experts, per_token] = model.experts(width)?;
    model.layer(&NORMS)?;
    model.layer(&EXPERTS)?;
    model.set(json!({
        "num_experts": experts, "num_experts_per_tok": per_token,
        // No key says it, and no released model has it otherwise.
        "norm_topk_prob": false,
    }));
    Ok(())
}
