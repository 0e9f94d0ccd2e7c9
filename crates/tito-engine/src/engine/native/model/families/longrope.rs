//! Rotary embeddings with two lists of factors, as Phi-3 and Phi-4 have them.
//!
//! transformers takes the short factors for all positions while a sequence is no longer than those of the original training,
//! and the long ones for all positions from then on, so that keys change their meaning as a sequence grows. vLLM chooses by
//! `--max-model-len`, once, and its log-probs of short sequences are others then. Here the short ones are computed, and no
//! sequence may be longer than they hold for.

use serde_json::{Map, Value, json};

use super::super::{
    rope::{RopeConfig, RopeDefaults, of_parameters},
    settings::{ConfigError, Settings},
    shape::Longest,
};

/// What is taken for granted where config.json does not say how long the sequences of the original training were.
const ORIGINAL: usize = 4096;

/// The rotary embeddings, and the longest sequence where there are two lists of factors.
pub(super) fn longrope(
    parameters: &Map<String, Value>,
    top: &Settings<'_>,
    head_dim: usize,
    defaults: RopeDefaults,
) -> Result<(RopeConfig, Option<Longest>), ConfigError> {
    let settings = Settings(parameters);
    let kind: Option<String> =
        settings.get("rope_type")?.map_or_else(|| settings.get("type"), |kind| Ok(Some(kind)))?;
    // The older names are others of the same.
    if !kind.is_some_and(|kind| ["longrope", "su", "yarn"].contains(&kind.as_str())) {
        return of_parameters(parameters, top, head_dim, defaults).map(|rope| (rope, None));
    }
    let mut unscaled = parameters.clone();
    unscaled.retain(|key, _| ["rope_theta", "partial_rotary_factor"].contains(&key.as_str()));
    unscaled.insert("rope_type".to_owned(), json!("default"));
    let mut rope = of_parameters(&unscaled, top, head_dim, defaults)?;
    let factors = factors(&settings, "short_factor", rope.frequencies.len())?;
    self::factors(&settings, "long_factor", rope.frequencies.len())?;
    for (frequency, factor) in rope.frequencies.iter_mut().zip(factors) {
        *frequency /= factor;
    }
    let inner = settings.get("original_max_position_embeddings")?;
    let original: usize = top.get("original_max_position_embeddings")?.or(inner).unwrap_or(ORIGINAL);
    if original < 2 {
        return Err(ConfigError::setting("original_max_position_embeddings", "is not over 1"));
    }
    rope.factor = attention_factor(&settings, top, original)?;
    let reason = "has factors for longer sequences, and keys change their meaning where these begin";
    Ok((rope, Some(Longest { tokens: original, key: "rope_scaling", reason })))
}

/// A factor for each pair of numbers that is rotated.
fn factors(settings: &Settings<'_>, key: &str, pairs: usize) -> Result<Vec<f32>, ConfigError> {
    let factors: Vec<f32> = settings.require(key)?;
    if factors.len() == pairs && factors.iter().all(|factor| *factor > 0.0 && factor.is_finite()) {
        return Ok(factors);
    }
    Err(ConfigError::setting(key, format!("is not a list of {pairs}, each over 0")))
}

/// What cosines and sines are multiplied with, for short sequences too.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "contexts have fewer than 2^52 positions; the one rounding of the factor"
)]
fn attention_factor(settings: &Settings<'_>, top: &Settings<'_>, original: usize) -> Result<f32, ConfigError> {
    if let Some(factor) = settings.get("attention_factor")? {
        return Ok(factor);
    }
    let original = original as f64;
    let factor: f64 = match settings.get("factor")? {
        Some(factor) => factor,
        None => top.require::<f64>("max_position_embeddings")? / original,
    };
    Ok(if factor > 1.0 { (1.0 + factor.ln() / original.ln()).sqrt() as f32 } else { 1.0 })
}
