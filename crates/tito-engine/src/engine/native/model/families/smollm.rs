//! SmolLM3.

use super::{
    super::{
        settings::{ConfigError, Settings},
        shape::ModelShape,
    },
    decoder::{Defaults, attention_biases, decoder, mlp_biases},
    windows::{kinds, same_windows, window, windows_of},
};

/// SmolLM3: some layers are not rotated.
pub(super) fn smollm3(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = decoder(settings, Defaults { tied: true, ..Defaults::COMMON })?;
    attention_biases(settings, false, &mut shape)?;
    mlp_biases(settings, &mut shape)?;
    let count = shape.layers.len();
    let listed = kinds(settings, count)?;
    let is_used = settings.get("use_sliding_window")?.unwrap_or(false);
    match window(settings)?.filter(|_| is_used) {
        Some(window) => {
            let kinds = listed.ok_or_else(|| ConfigError::setting("layer_types", "is missing"))?;
            windows_of(&kinds, Some(window), &mut shape)?;
        }
        // Layers that are said to have a window have one in transformers, whether or not it is said to be used.
        None => same_windows(settings, None, &mut shape)?,
    }
    for (attention, rotated) in shape.attentions().zip(rotated(settings, count)?) {
        attention.rotation = attention.rotation.filter(|_| rotated);
    }
    Ok(shape)
}

/// Which layers are rotated.
fn rotated(settings: &Settings<'_>, layers: usize) -> Result<Vec<bool>, ConfigError> {
    if let Some(listed) = settings.get::<Vec<u8>>("no_rope_layers")? {
        if listed.len() != layers {
            return Err(ConfigError::setting("no_rope_layers", format!("does not name {layers} layers")));
        }
        return Ok(listed.into_iter().map(|rotated| rotated != 0).collect());
    }
    let interval: usize = settings.get("no_rope_layer_interval")?.unwrap_or(4);
    if interval == 0 {
        return Err(ConfigError::setting("no_rope_layer_interval", "is 0"));
    }
    Ok((1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect())
}
