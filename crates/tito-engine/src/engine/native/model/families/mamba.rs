//! What families read of Mamba 2.

use serde_json::{Map, Value, json};

use super::{
    super::{
        settings::{ConfigError, Settings},
        shape::{Mixing, ModelShape, RecurrentLayer},
    },
    decoder::{MOST, MOST_HEADS, only},
};
use crate::engine::native::recurrence::{ConvolutionShape, GatedNormShape, RecurrenceShape, Rule};

/// No convolution is over more tokens.
pub(super) const MOST_TAPS: usize = 1 << 8;

/// The keys by which a family says how its Mamba layers are.
#[derive(Debug, Clone, Copy)]
pub(super) struct MambaKeys {
    /// Heads.
    pub(super) heads: &'static str,
    /// Numbers of a head.
    pub(super) head_dim: &'static str,
    /// Rows of a table.
    pub(super) state: &'static str,
    /// Groups of heads that share rows' factors.
    pub(super) groups: &'static str,
    /// Tokens of the convolution.
    pub(super) taps: &'static str,
    /// Whether the convolution has a bias, which it has by default.
    pub(super) convolution_bias: &'static str,
    /// Whether the way in and the way back have a bias.
    pub(super) bias: &'static str,
}

/// The keys of Bamba and those that came after it.
pub(super) const MAMBA: MambaKeys = MambaKeys {
    heads: "mamba_n_heads",
    head_dim: "mamba_d_head",
    state: "mamba_d_state",
    groups: "mamba_n_groups",
    taps: "mamba_d_conv",
    convolution_bias: "mamba_conv_bias",
    bias: "mamba_proj_bias",
};

/// A Mamba 2 part whose gates come before its norm.
pub(super) fn mamba(settings: &Settings<'_>, keys: MambaKeys, epsilon: f32) -> Result<RecurrentLayer, ConfigError> {
    let heads = settings.size(keys.heads, MOST_HEADS)?;
    let value = settings.size(keys.head_dim, MOST_HEADS)?;
    let key = settings.size(keys.state, MOST_HEADS)?;
    let groups = settings.size(keys.groups, MOST_HEADS)?;
    let taps = settings.size(keys.taps, MOST_TAPS)?;
    let (inner, rows) = (heads.saturating_mul(value), groups.saturating_mul(key));
    if !heads.is_multiple_of(groups) {
        return Err(ConfigError::setting(keys.groups, format!("does not divide {heads} heads")));
    }
    if inner.saturating_add(rows) > MOST {
        return Err(ConfigError::too_large(keys.heads, heads));
    }
    let (least, most) = limits(settings)?;
    let channels = inner + 2 * rows;
    let recurrence = RecurrenceShape {
        rule: Rule::Scan { least, most },
        heads,
        groups,
        key,
        value,
        values: inner,
        keys: 2 * inner,
        queries: 2 * inner + rows,
        steps: inner + channels,
        strengths: 0,
    };
    let norm = GatedNormShape { group: inner / groups, epsilon, gate_first: true, silu: true, gates: 0 };
    let bias = settings.get(keys.bias)?.unwrap_or(false);
    Ok(RecurrentLayer {
        inputs: vec![inner + channels + heads],
        input_bias: bias,
        rank: None,
        convolution: ConvolutionShape { first: inner, channels, taps, activated: true },
        convolution_bias: settings.on_by_default(keys.convolution_bias)?,
        mixing: Mixing::Tables { recurrence, skip: true, norm, norm_weights: Some(inner) },
        output_bias: bias,
    })
}

/// The settings with the width of a head, which they may leave to `inner`, the numbers of all heads.
pub(super) fn with_head_width(settings: &Settings<'_>, inner: usize) -> Result<Map<String, Value>, ConfigError> {
    let mut config = settings.0.clone();
    if config.get(MAMBA.head_dim).is_none_or(|said| said == "auto") {
        let width = inner / settings.size(MAMBA.heads, MOST)?;
        config.insert(MAMBA.head_dim.to_owned(), json!(width));
    }
    Ok(config)
}

/// Refuses an inner width that is not that of all heads: `mamba_expand` times the width of a state.
pub(super) fn check_expansion(settings: &Settings<'_>, layer: &RecurrentLayer) -> Result<(), ConfigError> {
    let hidden = settings.size("hidden_size", MOST)?;
    let expand: usize = settings.get("mamba_expand")?.unwrap_or(2);
    if Some(layer.output_width()) == hidden.checked_mul(expand) {
        return Ok(());
    }
    let reason =
        format!("is {expand}, and heads have {} numbers together, not that many times {hidden}", layer.output_width());
    Err(ConfigError::setting("mamba_expand", reason))
}

/// The least and the greatest step.
pub(super) fn limits(settings: &Settings<'_>) -> Result<(f32, f32), ConfigError> {
    let Some(limits) = settings.get::<Vec<Value>>("time_step_limit")? else { return Ok((0.0, f32::INFINITY)) };
    match &limits[..] {
        [least, most] if float(least).is_some() && float(most).is_some() => {
            Ok((float(least).unwrap_or(0.0), float(most).unwrap_or(f32::INFINITY)))
        }
        _ => Err(ConfigError::setting("time_step_limit", "is not two numbers")),
    }
}

/// A number, which JSON has no name for where it is infinite.
#[expect(clippy::cast_possible_truncation, reason = "the one rounding of a setting")]
fn float(value: &Value) -> Option<f32> {
    let named = value.get("__float__").and_then(Value::as_str);
    match named.or(value.as_str()) {
        Some("Infinity" | "inf") => Some(f32::INFINITY),
        Some(_) => None,
        None => value.as_f64().map(|number| number as f32),
    }
}

/// Refuses activations of convolutions other than silu.
pub(super) fn only_silu(settings: &Settings<'_>, key: &str) -> Result<(), ConfigError> {
    only(settings, key, &Value::from("silu"))
}

/// Gives some layers a part with a recurrent state in place of attention.
pub(super) fn recurrent_where(is_recurrent: Vec<bool>, part: &RecurrentLayer, shape: &mut ModelShape) {
    for (layer, is_recurrent) in shape.layers.iter_mut().zip(is_recurrent) {
        if is_recurrent {
            (layer.attention, layer.recurrent) = (None, Some(part.clone()));
        }
    }
}

/// Which layers have recurrent states, as `layer_types` names them.
pub(super) fn listed(
    settings: &Settings<'_>,
    count: usize,
    recurrent: &[&str],
    attention: &[&str],
) -> Result<Option<Vec<bool>>, ConfigError> {
    let Some(kinds) = settings.get::<Vec<String>>("layer_types")? else { return Ok(None) };
    if kinds.len() != count {
        return Err(ConfigError::setting("layer_types", "does not name every layer"));
    }
    let read = |kind: String| match kind.as_str() {
        kind if recurrent.contains(&kind) => Ok(true),
        kind if attention.contains(&kind) => Ok(false),
        other => Err(ConfigError::setting("layer_types", format!("names {other}, which is not supported"))),
    };
    kinds.into_iter().map(read).collect::<Result<_, _>>().map(Some)
}
