//! LG's EXAONE 4.

use super::{
    super::{
        settings::{ConfigError, Settings},
        shape::{ModelShape, NormPlaces},
    },
    decoder::{Defaults, NORMS_OF_HEADS, decoder},
    windows::{DEFAULT_WINDOW, kinds, sliding, window_or, windows_of},
};

/// EXAONE 4: norms after both parts of a layer only; where some layers have a window, the others are not rotated.
pub(super) fn exaone4(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = decoder(settings, Defaults { epsilon: 1e-5, ..Defaults::COMMON.theta(10_000.0) })?;
    let count = shape.layers.len();
    let window = window_or(settings, DEFAULT_WINDOW)?;
    let kinds = match (window, kinds(settings, count)?) {
        (_, Some(listed)) => listed,
        (None, None) => vec![false; count],
        (Some(_), None) => sliding(settings, count, period(settings)?)?,
    };
    windows_of(&kinds, window, &mut shape)?;
    for (attention, slides) in shape.attentions().zip(kinds) {
        attention.head_norms = NORMS_OF_HEADS;
        attention.rotation = attention.rotation.filter(|_| slides || window.is_none());
    }
    for layer in &mut shape.layers {
        layer.norms = NormPlaces::After;
    }
    Ok(shape)
}

/// Every how many layers one has no window. A pattern of letters counts only beside a list of layers.
fn period(settings: &Settings<'_>) -> Result<usize, ConfigError> {
    match settings.get("sliding_window_pattern")?.unwrap_or(4) {
        0 => Err(ConfigError::setting("sliding_window_pattern", "is 0")),
        period => Ok(period),
    }
}
