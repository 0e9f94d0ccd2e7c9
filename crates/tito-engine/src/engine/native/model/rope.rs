//! Rotary embeddings: the angle of each pair of numbers at each position.
//!
//! As transformers computes them (`modeling_rope_utils.py`), in f32 where it does: a frequency times a position is
//! rounded before its cosine is taken.

use std::f64::consts::TAU;

use serde_json::{Map, Value};

use super::settings::{ConfigError, Settings};
use crate::engine::native::backend::Angles;

/// Frequencies, and the factor of cosines and sines.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RopeConfig {
    /// One frequency for each pair of numbers that is rotated, in radians for a position.
    pub(crate) frequencies: Vec<f32>,
    /// The factor of cosines and sines, which is 1 for all but `yarn`.
    pub(crate) factor: f32,
    /// What cosines and sines are multiplied with at positions far from the first; `None` for nothing.
    pub(crate) far: Option<FarFactor>,
}

/// `1 + beta * ln(1 + floor((first + position) / original))`, by which queries grow with their position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FarFactor {
    /// How much.
    pub(crate) beta: f32,
    /// From which position on.
    pub(crate) original: f32,
    /// From which number on positions are counted.
    pub(crate) first: usize,
}

impl FarFactor {
    #[expect(clippy::cast_precision_loss, reason = "a context has fewer than 2^24 positions")]
    fn at(self, position: usize) -> f32 {
        1.0 + self.beta * (1.0 + ((self.first + position) as f32 / self.original).floor()).ln()
    }
}

/// What a family takes for granted.
#[derive(Debug, Clone, Copy)]
pub(super) struct RopeDefaults {
    /// The base of frequencies, unless it has to be said.
    pub(super) theta: Option<f64>,
    /// Which part of a head is rotated; `None` if it is the whole head and cannot be another.
    pub(super) partial: Option<f64>,
}

/// Reads `rope_theta` and `rope_scaling`, or `rope_parameters` in their place (transformers 5).
pub(super) fn rope(top: &Settings<'_>, head_dim: usize, defaults: RopeDefaults) -> Result<RopeConfig, ConfigError> {
    let read = |scaling: &Map<String, Value>| of_parameters(scaling, top, head_dim, defaults);
    let joined: Option<Map<String, Value>> = top.get("rope_parameters")?;
    let (joined, scaling) = match (joined, top.get::<Map<String, Value>>("rope_scaling")?) {
        (Some(joined), Some(scaling)) => (joined, scaling),
        (joined, scaling) => return read(&joined.or(scaling).unwrap_or_default()),
    };
    // Which of the two counts depends on the version of transformers. The older one says no `rope_theta`.
    let mut completed = scaling;
    if let Some(theta) = joined.get("rope_theta") {
        completed.entry("rope_theta").or_insert_with(|| theta.clone());
    }
    let found = read(&joined)?;
    if found == read(&completed)? {
        Ok(found)
    } else {
        Err(ConfigError::setting("rope_scaling", "is another one than `rope_parameters`"))
    }
}

/// Reads one set of parameters; what they do not say is taken from the top of config.json.
pub(super) fn of_parameters(
    scaling: &Map<String, Value>,
    top: &Settings<'_>,
    head_dim: usize,
    defaults: RopeDefaults,
) -> Result<RopeConfig, ConfigError> {
    if scaling.values().any(Value::is_object) {
        return Err(ConfigError::setting("rope_parameters", "that differ between layers are not supported"));
    }
    let settings = Settings(scaling);
    let theta = match settings.get("rope_theta")?.map_or_else(|| top.get("rope_theta"), |theta| Ok(Some(theta)))? {
        Some(theta) => theta,
        None => defaults.theta.ok_or_else(|| ConfigError::setting("rope_theta", "is missing"))?,
    };
    if !(theta > 1.0 && f64::is_finite(theta)) {
        return Err(ConfigError::setting("rope_theta", "is not over 1"));
    }
    let width = rotated_width(&settings, top, head_dim, defaults.partial)?;
    let plain = frequencies(theta, width);
    let kind: Option<String> = match settings.get("rope_type")? {
        None => settings.get("type")?,
        kind => kind,
    };
    let unscaled = |frequencies: Vec<f64>| RopeConfig::unscaled(&frequencies);
    match kind.as_deref() {
        None if settings.0.contains_key("factor") => {
            Err(ConfigError::setting("rope_scaling", "does not say of which type it is"))
        }
        None | Some("default") => Ok(unscaled(plain)),
        Some("linear") => {
            let factor = positive(&settings, "factor")?;
            Ok(unscaled(plain.into_iter().map(|frequency| frequency / factor).collect()))
        }
        Some("llama3") => Ok(unscaled(llama3(&plain, &settings, top)?)),
        Some("yarn") => yarn(&plain, theta, width, &settings, top),
        Some(other) => Err(ConfigError::setting("rope_scaling", format!("of type {other} is not supported"))),
    }
}

/// How many numbers of a head are rotated.
fn rotated_width(
    settings: &Settings<'_>,
    top: &Settings<'_>,
    head_dim: usize,
    default: Option<f64>,
) -> Result<usize, ConfigError> {
    const KEY: &str = "partial_rotary_factor";
    let given: Option<f64> = settings.get(KEY)?.map_or_else(|| top.get(KEY), |factor| Ok(Some(factor)))?;
    let Some(default) = default else {
        let is_whole = given.is_none_or(|factor| (factor - 1.0).abs() < f64::EPSILON);
        return if is_whole { Ok(head_dim) } else { Err(ConfigError::setting(KEY, "is not supported")) };
    };
    // Of what is null, transformers rotates the whole head, and not the part that it rotates of what is left out.
    let is_null = settings.is_null(KEY) || top.is_null(KEY);
    if is_null && (default - 1.0).abs() > f64::EPSILON {
        return Err(ConfigError::setting(KEY, "is null: leave it out, or say which part of a head is rotated"));
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "heads are small, and transformers cuts the fraction off"
    )]
    let width = (head_dim as f64 * given.unwrap_or(default)) as usize;
    if width == 0 || width > head_dim || !width.is_multiple_of(2) {
        return Err(ConfigError::setting(KEY, format!("rotates {width} of {head_dim} numbers")));
    }
    Ok(width)
}

pub(super) fn positive(settings: &Settings<'_>, key: &str) -> Result<f64, ConfigError> {
    let value: f64 = settings.require(key)?;
    if value > 0.0 && value.is_finite() { Ok(value) } else { Err(ConfigError::setting(key, "is not over 0")) }
}

#[expect(clippy::cast_possible_truncation, reason = "the one rounding of a frequency")]
fn rounded(frequencies: &[f64]) -> Vec<f32> {
    frequencies.iter().map(|frequency| *frequency as f32).collect()
}

/// `theta^(-2 * pair / width)` of each pair.
#[expect(clippy::cast_precision_loss, reason = "heads are small")]
pub(super) fn frequencies(theta: f64, width: usize) -> Vec<f64> {
    (0..width / 2).map(|pair| theta.powf(-((2 * pair) as f64) / width as f64)).collect()
}

const ORIGINAL: &str = "original_max_position_embeddings";

/// How long the sequences of the original training were. It may stand beside the parameters too; transformers takes that one
/// where the two differ, and other readers the other.
fn original_length(settings: &Settings<'_>, top: &Settings<'_>) -> Result<Option<f64>, ConfigError> {
    let read =
        |settings: &Settings<'_>| settings.get::<f64>(ORIGINAL)?.map(|_| positive(settings, ORIGINAL)).transpose();
    match (read(settings)?, read(top)?) {
        (Some(inner), Some(outer)) if (inner - outer).abs() > f64::EPSILON => Err(ConfigError::setting(
            ORIGINAL,
            format!("is {outer}, and {inner} in the parameters of the rotary embedding"),
        )),
        (inner, outer) => Ok(inner.or(outer)),
    }
}

/// Long waves are stretched, short ones are kept, and those between are blended.
fn llama3(plain: &[f64], settings: &Settings<'_>, top: &Settings<'_>) -> Result<Vec<f64>, ConfigError> {
    let factor = positive(settings, "factor")?;
    let (low, high) = (positive(settings, "low_freq_factor")?, positive(settings, "high_freq_factor")?);
    let original = original_length(settings, top)?.ok_or_else(|| ConfigError::setting(ORIGINAL, "is missing"))?;
    if high < low {
        return Err(ConfigError::setting("high_freq_factor", "is below `low_freq_factor`"));
    }
    let scaled = |frequency: &f64| match original * frequency / TAU {
        turns if turns >= high => *frequency,
        turns if turns <= low => frequency / factor,
        turns => {
            let kept = (turns - low) / (high - low);
            (1.0 - kept) * frequency / factor + kept * frequency
        }
    };
    Ok(plain.iter().map(scaled).collect())
}

/// Pairs that turn often keep their frequency, those that turn seldom are stretched, with a ramp over the pairs between.
fn yarn(
    plain: &[f64],
    theta: f64,
    head_dim: usize,
    settings: &Settings<'_>,
    top: &Settings<'_>,
) -> Result<RopeConfig, ConfigError> {
    // vLLM reads these settings, and transformers does not.
    for key in ["attn_factor", "extrapolation_factor"] {
        if settings.get(key)?.is_some_and(|factor: f64| (factor - 1.0).abs() > f64::EPSILON) {
            return Err(ConfigError::setting(key, "is not supported"));
        }
    }
    if settings.get("apply_yarn_scaling")? == Some(false) {
        return Err(ConfigError::setting("apply_yarn_scaling", "is not supported"));
    }
    let factor = positive(settings, "factor")?;
    let or = |key, default: f64| settings.get::<f64>(key)?.map_or(Ok(default), |_| positive(settings, key));
    let original = match original_length(settings, top)? {
        Some(original) => original,
        None => positive(top, "max_position_embeddings")?,
    };
    let (fast, slow) = (or("beta_fast", 32.0)?, or("beta_slow", 1.0)?);
    #[expect(clippy::cast_precision_loss, reason = "heads are small")]
    let dim = head_dim as f64;
    let pair_of = |turns: f64| dim * (original / (turns * TAU)).ln() / (2.0 * theta.ln());
    let (mut low, mut high) = (pair_of(fast), pair_of(slow));
    if settings.on_by_default("truncate")? {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(dim - 1.0));
    if (high - low).abs() < f64::EPSILON {
        high += 0.001;
    }
    let mut pair = -1.0;
    let scaled = plain.iter().map(|frequency| {
        pair += 1.0;
        let stretched = ((pair - low) / (high - low)).clamp(0.0, 1.0);
        frequency / factor * stretched + frequency * (1.0 - stretched)
    });
    let scaled: Vec<f64> = scaled.collect();
    Ok(RopeConfig { frequencies: rounded(&scaled), factor: yarn_factor(factor, settings)?, far: None })
}

/// `0.1 * mscale * ln(factor) + 1`, by which what was stretched is made up for.
pub(super) fn frequency_scale(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}

fn yarn_factor(factor: f64, settings: &Settings<'_>) -> Result<f32, ConfigError> {
    let scale = |mscale: f64| frequency_scale(factor, mscale);
    let (mscale, all): (Option<f64>, Option<f64>) = (settings.get("mscale")?, settings.get("mscale_all_dim")?);
    let given: Option<f64> = settings.get("attention_factor")?;
    let factor = match (given, mscale.filter(|scale| *scale != 0.0), all.filter(|scale| *scale != 0.0)) {
        (Some(given), ..) => given,
        (None, Some(mscale), Some(all)) => scale(mscale) / scale(all),
        (None, ..) => scale(1.0),
    };
    #[expect(clippy::cast_possible_truncation, reason = "the one rounding of the factor")]
    let factor = factor as f32;
    Ok(factor)
}

impl RopeConfig {
    /// Frequencies as they are.
    pub(super) fn unscaled(frequencies: &[f64]) -> Self {
        Self { frequencies: rounded(frequencies), factor: 1.0, far: None }
    }

    /// Angles of 0 for so many pairs of numbers, which do nothing but grow with their position.
    pub(super) fn still(pairs: usize, far: FarFactor) -> Self {
        Self { frequencies: vec![0.0; pairs], factor: 1.0, far: Some(far) }
    }

    /// The angles of some positions, in their order.
    pub(crate) fn angles(&self, positions: impl Iterator<Item = usize>) -> Angles {
        let mut angles = Angles::default();
        for position in positions {
            let factor = self.far.map_or(self.factor, |far| self.factor * far.at(position));
            for frequency in &self.frequencies {
                #[expect(clippy::cast_precision_loss, reason = "a context has fewer than 2^24 positions")]
                let angle = position as f32 * frequency;
                let (sine, cosine) = f64::from(angle).sin_cos();
                #[expect(clippy::cast_possible_truncation, reason = "the one rounding of a cosine")]
                let (sine, cosine) = (sine as f32, cosine as f32);
                angles.cosines.push(cosine * factor);
                angles.sines.push(sine * factor);
            }
        }
        angles
    }
}

/// The first pairs of a head turn as they would if all of them did, and the others do not.
pub(super) fn proportional(parameters: &Map<String, Value>, head_dim: usize) -> Result<RopeConfig, ConfigError> {
    const PART: &str = "partial_rotary_factor";
    let settings = Settings(parameters);
    let theta = positive(&settings, "rope_theta")?;
    let (factor, part) = (settings.get("factor")?.unwrap_or(1.0), settings.get(PART)?.unwrap_or(1.0));
    if theta <= 1.0 || !(factor > 0.0 && f64::is_finite(factor)) {
        return Err(ConfigError::setting("rope_parameters", "have a `rope_theta` or a `factor` that is too small"));
    }
    if !(0.0..=1.0).contains(&part) {
        return Err(ConfigError::setting(PART, "is not between 0 and 1"));
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "heads are small, and transformers cuts the fraction off"
    )]
    let turning = (part * head_dim as f64 / 2.0) as usize;
    let mut frequencies = frequencies(theta, head_dim);
    for (pair, frequency) in frequencies.iter_mut().enumerate() {
        *frequency = if pair < turning { *frequency / factor } else { 0.0 };
    }
    Ok(RopeConfig::unscaled(&frequencies))
}

/// The parameters where only one of both spellings is to be there.
pub(super) fn in_one_spelling(settings: &Settings<'_>) -> Result<Option<Map<String, Value>>, ConfigError> {
    match (settings.get("rope_parameters")?, settings.get("rope_scaling")?) {
        (Some(_), Some::<Map<String, Value>>(_)) => {
            Err(ConfigError::setting("rope_scaling", "beside `rope_parameters` is not supported here"))
        }
        (given, None) | (None, given) => Ok(given),
    }
}

/// The parameters of the rotary embeddings of windowed and of other layers, where config.json has them apart.
pub(super) fn parameters_by_kind(settings: &Settings<'_>) -> Result<Option<[Map<String, Value>; 2]>, ConfigError> {
    const KEY: &str = "rope_parameters";
    let Some(all) = settings.get::<Map<String, Value>>(KEY)? else { return Ok(None) };
    if !all.values().any(Value::is_object) {
        return Ok(None);
    }
    // transformers looks for it here, and not among those of a kind.
    if all.get("truncate").is_some_and(|truncates| *truncates != Value::Bool(true)) {
        return Err(ConfigError::setting("truncate", "beside parameters of kinds of layers is not supported"));
    }
    let of = |kind: &str| match all.get(kind) {
        Some(Value::Object(parameters)) => Ok(parameters.clone()),
        _ => Err(ConfigError::setting(KEY, format!("has nothing for {kind}"))),
    };
    Ok(Some([of("sliding_attention")?, of("full_attention")?]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: &Value) -> Result<RopeConfig, ConfigError> {
        let defaults = RopeDefaults { theta: None, partial: None };
        rope(&Settings(config.as_object().unwrap()), 8, defaults)
    }

    #[test]
    fn both_spellings_give_the_same_frequencies() {
        let old = json!({"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 4.0}});
        let new = json!({"rope_parameters": {"rope_theta": 1e4, "rope_type": "linear", "factor": 4.0}});
        assert_eq!(read(&old).unwrap(), read(&new).unwrap());
        let mut both = old.clone();
        both["rope_parameters"] = new["rope_parameters"].clone();
        assert_eq!(read(&both).unwrap(), read(&new).unwrap());
        assert_eq!(read(&new).unwrap().frequencies, [0.25, 0.025, 0.0025, 0.000_25]);
    }

    #[test]
    fn what_is_not_computed_is_refused() {
        for config in [
            json!({}),
            json!({"rope_theta": 0.5}),
            json!({"rope_theta": 1e4, "rope_scaling": {"rope_type": "longrope", "factor": 2.0}}),
            json!({"rope_theta": 1e4, "rope_scaling": {"factor": 2.0}}),
            json!({"rope_theta": 1e4, "rope_scaling": {"rope_type": "linear"}}),
            json!({"rope_theta": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 0}}),
            json!({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}),
            json!({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
            json!({
                "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"},
                "rope_scaling": {"rope_type": "linear", "factor": 2.0},
            }),
            json!({"rope_theta": 1e4, "max_position_embeddings": 64,
                "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "attn_factor": 0.5}}),
            json!({"rope_theta": 1e4,
                "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 0}}),
            json!({"rope_theta": 1e4, "max_position_embeddings": 64,
                "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": -1}}),
        ] {
            assert!(read(&config).is_err(), "{config}");
        }
    }

    #[test]
    fn the_length_of_the_original_training_may_stand_beside_the_parameters() {
        let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0});
        for scaling in [llama3, json!({"rope_type": "yarn", "factor": 4.0})] {
            let with = |inner: Option<u32>, outer: Option<u32>| {
                let mut config =
                    json!({"rope_theta": 1e4, "max_position_embeddings": 131_072, "rope_scaling": scaling});
                if let Some(inner) = inner {
                    config["rope_scaling"][ORIGINAL] = json!(inner);
                }
                if let Some(outer) = outer {
                    config[ORIGINAL] = json!(outer);
                }
                read(&config)
            };
            let inner = with(Some(32), None).unwrap();
            assert_eq!(with(None, Some(32)).unwrap(), inner, "{scaling}");
            assert_eq!(with(Some(32), Some(32)).unwrap(), inner, "{scaling}");
            assert!(with(Some(32), Some(64)).is_err(), "{scaling}");
        }
    }

    #[test]
    fn a_position_turns_every_pair_by_its_frequency() {
        let rope = read(&json!({"rope_theta": 1e4})).unwrap();
        let angles = rope.angles([0, 3].into_iter());
        assert_eq!(angles.cosines[..4], [1.0; 4]);
        assert_eq!(angles.sines[..4], [0.0; 4]);
        assert!((f64::from(angles.cosines[4]) - 3.0_f64.cos()).abs() < 1e-7);
        assert!((f64::from(angles.sines[5]) - 0.3_f64.sin()).abs() < 1e-7);
    }
}
