//! Apertus.

use serde_json::json;

use super::{
    super::{
        rope::{in_one_spelling, of_parameters},
        settings::{ConfigError, Settings},
        shape::ModelShape,
    },
    decoder::{Defaults, KeyHeads, NORMS_OF_HEADS, attention_biases, decoder_with, heads, only},
    windows::same_windows,
};
use crate::engine::native::backend::{Gate, Xielu};

/// Apertus: feed-forward parts without gates, whose activation is learnt in each layer.
pub(super) fn apertus(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    only(settings, "hidden_act", &json!("xielu"))?;
    // The numbers of the activation are a checkpoint's.
    let gate = Some(Gate::Xielu(Xielu::default()));
    let common = Defaults { key_heads: KeyHeads::AsQueries, epsilon: 1e-5, ..Defaults::COMMON.theta(12e6) };
    let defaults = Defaults { gate, ..common };
    let heads = heads(settings, defaults)?;
    // Without parameters, a `rope_theta` does not count.
    let default = json!({
        "rope_type": "llama3", "rope_theta": 12e6, "factor": 8.0, "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    });
    let parameters = in_one_spelling(settings)?.unwrap_or_else(|| default.as_object().cloned().unwrap_or_default());
    let rope = of_parameters(&parameters, settings, heads.kept.head_dim, defaults.rope)?;
    let mut shape = decoder_with(settings, defaults, heads, vec![rope])?;
    attention_biases(settings, false, &mut shape)?;
    only(settings, "mlp_bias", &json!(false))?;
    for attention in shape.attentions() {
        attention.head_norms = NORMS_OF_HEADS;
    }
    same_windows(settings, None, &mut shape)?;
    shape.names.attention_norm = "attention_layernorm";
    shape.names.mlp_norm = "feedforward_layernorm";
    shape.names.dense = shape.names.dense.joined("up_proj");
    Ok(shape)
}
