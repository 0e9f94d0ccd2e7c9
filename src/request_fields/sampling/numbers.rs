//! The numbers that shape the distribution: each is the request's, or the model's default, or off.

use serde_json::{Value, json};

use crate::{
    model::GenerationConfig,
    sampling::SamplingParams,
    wire::{error::ApiError, fields::sampling::SamplingFields},
};

/// The numbers of a request with defaults filled in, not yet checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SettledNumbers {
    presence_penalty: f64,
    frequency_penalty: f64,
    repetition_penalty: f64,
    temperature: f64,
    top_p: f64,
    top_k: i64,
    min_p: f64,
}

impl SettledNumbers {
    /// Fills in the defaults of the model.
    pub(crate) fn new(fields: &SamplingFields, defaults: &GenerationConfig) -> Self {
        let off = SamplingParams::default();
        let pick = |asked: Option<f64>, default: Option<f64>, off| asked.or(default).unwrap_or(off);
        Self {
            presence_penalty: pick(fields.presence_penalty, defaults.presence_penalty, off.presence_penalty),
            frequency_penalty: pick(fields.frequency_penalty, defaults.frequency_penalty, off.frequency_penalty),
            repetition_penalty: pick(fields.repetition_penalty, defaults.repetition_penalty, off.repetition_penalty),
            temperature: pick(fields.temperature, defaults.temperature, off.temperature),
            top_p: pick(fields.top_p, defaults.top_p, off.top_p),
            top_k: fields.top_k.or(defaults.top_k).unwrap_or(0),
            min_p: pick(fields.min_p, defaults.min_p, off.min_p),
        }
    }

    /// Returns parameters with these numbers, and nothing else.
    pub(super) fn params(self) -> Result<SamplingParams, ApiError> {
        let top_k = match self.top_k {
            -1 => 0,
            top_k => usize::try_from(top_k).map_err(|_| {
                let message = format!("top_k must be 0 (disable), or at least 1, got {top_k}.");
                ApiError::invalid_request(message)
            })?,
        };
        Ok(SamplingParams {
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            repetition_penalty: self.repetition_penalty,
            temperature: self.temperature,
            top_p: self.top_p,
            top_k,
            min_p: self.min_p,
            ..SamplingParams::default()
        })
    }

    /// Returns the numbers as `/inference/v1/generate` takes them, in vLLM's order. Greedy sampling does not use the limits
    /// of what may be drawn.
    pub(crate) fn written(self, is_greedy: bool) -> impl Iterator<Item = (&'static str, Value)> {
        let shape = [
            ("presence_penalty", json!(self.presence_penalty)),
            ("frequency_penalty", json!(self.frequency_penalty)),
            ("repetition_penalty", json!(self.repetition_penalty)),
            ("temperature", json!(self.temperature)),
        ];
        let limits = [
            ("top_p", Some(json!(self.top_p))),
            ("top_k", (self.top_k != 0).then(|| json!(self.top_k))),
            ("min_p", Some(json!(self.min_p))),
        ];
        let limits = limits.into_iter().filter_map(move |(name, value)| Some((name, value.filter(|_| !is_greedy)?)));
        shape.into_iter().chain(limits)
    }
}
