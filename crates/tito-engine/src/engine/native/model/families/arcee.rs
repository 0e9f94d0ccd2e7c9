//! Arcee's AFM.

use serde_json::json;

use super::{
    super::{
        settings::{ConfigError, Settings},
        shape::ModelShape,
    },
    decoder::{Defaults, KeyHeads, attention_biases, decoder, mlp_biases, only},
    windows::same_windows,
};
use crate::engine::native::backend::Gate;

/// Arcee: a Llama whose feed-forward parts have no gates.
pub(super) fn arcee(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    only(settings, "hidden_act", &json!("relu2"))?;
    let common = Defaults { key_heads: KeyHeads::AsQueries, epsilon: 1e-5, ..Defaults::COMMON.theta(10_000.0) };
    let mut shape = decoder(settings, Defaults { gate: Some(Gate::SquaredRelu), ..common })?;
    attention_biases(settings, false, &mut shape)?;
    mlp_biases(settings, &mut shape)?;
    same_windows(settings, None, &mut shape)?;
    shape.names.dense = shape.names.dense.joined("up_proj");
    Ok(shape)
}
