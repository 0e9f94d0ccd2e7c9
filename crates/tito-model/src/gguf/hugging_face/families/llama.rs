//! Llama, and what computes like it: Mistral, Mixtral, SmolLM2; SmolLM3.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::Dim,
    model::{Family, Model},
    rope::{self, ROPE_FACTORS},
    tables::{ATTENTION, ATTENTION_BIASES, EXPERTS_OF_MIXTRAL, MLP, NORMS, rotary},
};

pub(super) const LLAMA: Family = Family { name: "llama", model_type: "llama", class: "LlamaForCausalLM", read: llama };

pub(super) const SMOLLM3: Family =
    Family { name: "smollm3", model_type: "smollm3", class: "SmolLM3ForCausalLM", read: smollm3 };

fn llama(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.decoder()?;
    let pairs = model.sizes.get(Dim::Head) / 2;
    if let Some(scaling) = rope::with_factors(model.file, &model.settings, pairs)? {
        model.unused(ROPE_FACTORS);
        model.set(json!({"rope_scaling": scaling}));
    }
    model.layer(&NORMS)?;
    model.layer(&rotary(ATTENTION))?;
    if model.settings.size("expert_count")?.is_some_and(|experts| experts > 0) {
        return mixtral(model);
    }
    let biases = dense(model)?;
    // A Llama with a window is a Mistral.
    match model.window()? {
        Some(window) if biases == [false; 2] => model.set(json!({
            "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": window,
        })),
        Some(_) => model.no_window()?,
        None => model.set(json!({"sliding_window": null})),
    }
    Ok(())
}

fn mixtral(model: &mut Model<'_>) -> Result<(), GgufError> {
    let width = model.intermediate()?;
    let [experts, per_token] = model.experts(width)?;
    model.layer(&EXPERTS_OF_MIXTRAL)?;
    let window = model.window()?;
    model.set(json!({
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "sliding_window": window,
        "num_local_experts": experts, "num_experts_per_tok": per_token,
    }));
    Ok(())
}

/// Biases of attention, and of the feed-forward part.
fn dense(model: &mut Model<'_>) -> Result<[bool; 2], GgufError> {
    model.intermediate()?;
    model.layer(&MLP)?;
    let biases = [model.attention_biases(&rotary(ATTENTION_BIASES))?, model.mlp_biases()?];
    model.set(json!({"attention_bias": biases[0], "mlp_bias": biases[1]}));
    Ok(biases)
}

fn smollm3(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.decoder()?;
    model.layer(&NORMS)?;
    model.layer(&rotary(ATTENTION))?;
    dense(model)?;
    model.no_window()?;
    // No key says it: every fourth layer is without positions wherever such a file is computed.
    model.set(json!({"sliding_window": null, "no_rope_layer_interval": 4}));
    Ok(())
}
