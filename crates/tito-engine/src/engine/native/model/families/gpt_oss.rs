//! gpt-oss.

use serde_json::{Map, Value, json};

use super::{
    super::{
        names::{ExpertNames, Names, StackedNames},
        rope::{RopeConfig, of_parameters, rope},
        settings::{ConfigError, Settings},
        shape::{ModelShape, RouterShape},
    },
    decoder::{Defaults, attention_biases, decoder_with, heads, only},
    mixtures::{MixtureKeys, SOFTMAX, counted, routed, sparse_from},
    windows::{sliding, window_or, windows_of},
};
use crate::engine::native::backend::Gate;

const MIXTURE: MixtureKeys = MixtureKeys {
    experts: "num_local_experts",
    experts_too: None,
    per_token: "num_experts_per_tok",
    intermediate: "intermediate_size",
};

/// gpt-oss: every head has a sink, every other layer a window, and experts have biases and clamped gates.
pub(super) fn gpt_oss(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let common = Defaults::COMMON.theta(150_000.0);
    let defaults = Defaults { head_dim: Some(64), epsilon: 1e-5, activation: "", ..common };
    let heads = heads(settings, defaults)?;
    let mut shape = decoder_with(settings, defaults, heads, vec![rope_of(settings, heads.kept.head_dim, defaults)?])?;
    attention_biases(settings, true, &mut shape)?;
    let kinds = sliding(settings, shape.layers.len(), 2)?;
    windows_of(&kinds, window_or(settings, 128)?, &mut shape)?;
    only(settings, "swiglu_alpha", &json!(1.702))?;
    let limit: f32 = settings.get("swiglu_limit")?.unwrap_or(7.0);
    if !(limit > 0.0 && limit.is_finite()) {
        return Err(ConfigError::setting("swiglu_limit", "is not over 0"));
    }
    let mut mixture = routed(settings, MIXTURE, RouterShape { bias: true, ..SOFTMAX }, Gate::Clamped { limit })?;
    mixture.expert.bias = true;
    for attention in shape.attentions() {
        attention.sinks = true;
    }
    sparse_from(0, &mixture, &mut shape);
    let stacked = StackedNames {
        gate_up: "mlp.experts.gate_up_proj",
        gate_up_bias: "mlp.experts.gate_up_proj_bias",
        down: "mlp.experts.down_proj",
        down_bias: "mlp.experts.down_proj_bias",
        transposed: true,
    };
    shape.names = Names { router: "mlp.router", experts: ExpertNames::Stacked(stacked), ..Names::default() };
    counted("num_local_experts", shape)
}

/// The rotary embedding; where config.json says nothing of it, the one that transformers takes for granted.
fn rope_of(settings: &Settings<'_>, head_dim: usize, defaults: Defaults) -> Result<RopeConfig, ConfigError> {
    let said = |key: &str| settings.get::<Value>(key).map(|value| value.is_some());
    if said("rope_parameters")? || said("rope_scaling")? {
        return rope(settings, head_dim, defaults.rope);
    }
    let default = json!({
        "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
        "original_max_position_embeddings": 4096,
    });
    let default: Map<String, Value> = default.as_object().cloned().unwrap_or_default();
    of_parameters(&default, settings, head_dim, defaults.rope)
}
