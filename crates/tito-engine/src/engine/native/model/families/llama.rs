//! Llama, and those that differ from it by biases only.

use super::{
    super::{
        settings::{ConfigError, Settings},
        shape::ModelShape,
    },
    decoder::{Defaults, KeyHeads, attention_biases, decoder, mlp_biases},
    windows::same_windows,
};

/// Llama 2 and 3, and everything that was made to look like them.
pub(super) fn llama(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let defaults = Defaults { key_heads: KeyHeads::AsQueries, ..Defaults::COMMON.theta(10_000.0) };
    let mut shape = decoder(settings, defaults)?;
    attention_biases(settings, false, &mut shape)?;
    mlp_biases(settings, &mut shape)?;
    // A `sliding_window` is not used by this family.
    same_windows(settings, None, &mut shape)?;
    Ok(shape)
}

/// ByteDance's Seed-OSS.
pub(super) fn seed_oss(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let defaults = Defaults { head_dim: Some(128), ..Defaults::COMMON.theta(10_000.0) };
    let mut shape = decoder(settings, defaults)?;
    attention_biases(settings, true, &mut shape)?;
    let output = settings.get("attention_out_bias")?.unwrap_or(false);
    for attention in shape.attentions() {
        attention.output_bias = output;
    }
    mlp_biases(settings, &mut shape)?;
    same_windows(settings, None, &mut shape)?;
    Ok(shape)
}
