//! What families read of windows: how many tokens a layer attends to, and in which layers.

use super::super::{
    settings::{ConfigError, Settings},
    shape::ModelShape,
};
use crate::engine::native::backend::Reach;

/// The window of a model whose config.json has no `sliding_window` at all, as transformers has it.
pub(super) const DEFAULT_WINDOW: usize = 4096;

/// Says of each layer whether it has a window, where that is listed.
pub(super) fn kinds(settings: &Settings<'_>, layers: usize) -> Result<Option<Vec<bool>>, ConfigError> {
    let Some(kinds) = settings.get::<Vec<String>>("layer_types")? else { return Ok(None) };
    if kinds.len() != layers {
        return Err(ConfigError::setting("layer_types", format!("does not name {layers} layers")));
    }
    let slides = |kind: &String| match kind.as_str() {
        "full_attention" => Ok(false),
        "sliding_attention" => Ok(true),
        other => Err(ConfigError::setting("layer_types", format!("names {other}"))),
    };
    kinds.iter().map(slides).collect::<Result<_, _>>().map(Some)
}

/// Which layers have a window: as they are listed, or else all but every `period`th.
pub(super) fn sliding(settings: &Settings<'_>, layers: usize, period: usize) -> Result<Vec<bool>, ConfigError> {
    let unlisted = || (1..=layers).map(|layer| !layer.is_multiple_of(period)).collect();
    Ok(kinds(settings, layers)?.unwrap_or_else(unlisted))
}

/// The window; one of no tokens is refused.
pub(super) fn window(settings: &Settings<'_>) -> Result<Option<usize>, ConfigError> {
    checked(settings.get("sliding_window")?)
}

/// The window of a family that has one unless it is told otherwise: leaving it out is not the same as `null`.
pub(super) fn window_or(settings: &Settings<'_>, default: usize) -> Result<Option<usize>, ConfigError> {
    checked(settings.or_left_out("sliding_window", Some(default))?)
}

fn checked(window: Option<usize>) -> Result<Option<usize>, ConfigError> {
    match window {
        Some(0) => Err(ConfigError::setting("sliding_window", "is 0")),
        window => Ok(window),
    }
}

/// A window for all layers, or for none: what other lists of layers would mean, not everyone agrees on.
pub(super) fn same_windows(
    settings: &Settings<'_>,
    window: Option<usize>,
    shape: &mut ModelShape,
) -> Result<(), ConfigError> {
    let other = if window.is_some() { "full_attention" } else { "sliding_attention" };
    let kinds = kinds(settings, shape.layers.len())?.unwrap_or_default();
    if kinds.contains(&window.is_none()) {
        return Err(ConfigError::setting("layer_types", format!("names {other}, which is not supported here")));
    }
    for attention in shape.attentions() {
        attention.shape.reach = Reach::within(window);
    }
    Ok(())
}

/// A window for the layers that are to have one.
pub(super) fn windows_of(kinds: &[bool], window: Option<usize>, shape: &mut ModelShape) -> Result<(), ConfigError> {
    if window.is_none() && kinds.contains(&true) {
        return Err(ConfigError::setting("sliding_window", "is missing"));
    }
    for (attention, slides) in shape.attentions().zip(kinds) {
        attention.shape.reach = Reach::within(window.filter(|_| *slides));
    }
    Ok(())
}
