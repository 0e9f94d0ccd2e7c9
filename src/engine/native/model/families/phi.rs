//! Phi-3 and Phi-4.

use serde_json::{Map, Value};

use super::{
    super::{
        names::Names,
        rope::{RopeConfig, RopeDefaults, of_parameters},
        settings::{ConfigError, Settings},
        shape::ModelShape,
    },
    decoder::{Defaults, KeyHeads, decoder_with, heads},
    windows::{same_windows, window},
};

/// Phi-3, Phi-3.5 and Phi-4: one matrix makes queries, keys and values, and one gates and ups.
pub(super) fn phi3(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let common = Defaults::COMMON.theta(10_000.0).partial(1.0);
    let defaults = Defaults { key_heads: KeyHeads::AsQueries, epsilon: 1e-5, ..common };
    let kept = heads(settings, defaults)?;
    let rope = rope_of(settings, kept.1.head_dim, defaults.rope)?;
    let mut shape = decoder_with(settings, defaults, kept, vec![rope])?;
    same_windows(settings, window(settings)?, &mut shape)?;
    let names = Names::default();
    let dense = names.dense.joined("gate_up_proj");
    shape.names = Names { joined_qkv: Some("self_attn.qkv_proj"), dense, ..names };
    Ok(shape)
}

/// The rotary embedding. Of `longrope` transformers takes the long or the short factors by the length of a sequence, so
/// that keys change their meaning as it grows: only a model whose sequences are all short is computed.
fn rope_of(settings: &Settings<'_>, head_dim: usize, defaults: RopeDefaults) -> Result<RopeConfig, ConfigError> {
    let given = match (settings.get("rope_parameters")?, settings.get("rope_scaling")?) {
        (Some(_), Some::<Map<String, Value>>(_)) => {
            return Err(ConfigError::setting("rope_scaling", "beside `rope_parameters` is not supported here"));
        }
        (given, None) | (None, given) => given,
    };
    let parameters: Map<String, Value> = given.unwrap_or_default();
    of_parameters(&parameters, settings, head_dim, defaults)
}
