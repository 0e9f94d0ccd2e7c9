//! The wire shapes of a sampling request (`types/sample_request.py`, `types/_pydantic_types/sampling_params.py`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::targets::TinkerTensor;
use crate::{
    asked_for::is_truthy,
    wire::{
        body::{ANY, Body, Rules},
        error::ApiError,
        fields::sampling::{SamplingFields, Stop},
    },
};

/// A prompt, and how to continue it.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TinkerSampleRequest {
    pub sampling_session_id: String,
    /// The client's number of the request. The same number is the same request, and is sampled once.
    pub seq_id: u64,
    /// Sequences to sample (default 1).
    pub num_samples: Option<i64>,
    pub prompt: TinkerPrompt,
    pub sampling_params: TinkerSamplingParams,
    /// Report the log-prob of every token of the prompt but the first one.
    pub prompt_logprobs: Option<bool>,
    /// Only of so many tokens at the end of the prompt.
    pub prompt_logprobs_last_n: Option<i64>,
    /// Report so many of the most probable tokens at each position of the prompt.
    pub topk_prompt_logprobs: Option<i64>,
    /// Report so many of the most probable tokens at each sampled token.
    pub topk_sample_logprobs: Option<i64>,
    /// Report the log-probs of these ids at positions of the prompt.
    pub target_prompt_logprobs: Option<TinkerTensor>,
    /// All else: refused unless it asks for nothing.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub rest: BTreeMap<String, Value>,
}

impl Body for TinkerSampleRequest {
    const RULES: &'static Rules = &ANY;
}

impl TinkerSampleRequest {
    /// Refuses what tito does not have, in the request and in its sampling parameters.
    pub(crate) fn check_rest(&self) -> Result<(), ApiError> {
        let own = self.rest.iter().filter(|(name, _)| *name != "type");
        let all = own.chain(&self.sampling_params.rest);
        all.filter(|(_, value)| is_truthy(value)).try_for_each(|(name, _)| {
            let message = format!("`{name}` is not supported by this server");
            Err(ApiError::invalid_request(message))
        })
    }
}

/// A prompt in pieces.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TinkerPrompt {
    pub chunks: Vec<TinkerChunk>,
}

/// A piece of a prompt.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TinkerChunk {
    /// Only `encoded_text`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Token ids.
    pub tokens: Option<Vec<i64>>,
}

/// How to sample. The defaults are Tinker's, and none of the model's.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct TinkerSamplingParams {
    /// Tokens to sample (default: the room that the prompt leaves).
    pub max_tokens: Option<i64>,
    /// The same seed gives the same ids.
    pub seed: Option<i64>,
    /// A text, texts or token ids that end a sequence, as the end of a turn does; an empty list has nothing end it.
    pub stop: Option<TinkerStop>,
    /// 0 is greedy, at most 2.
    pub temperature: Option<f64>,
    /// -1 is off.
    pub top_k: Option<i64>,
    /// In (0, 1].
    pub top_p: Option<f64>,
    /// All else: refused unless it asks for nothing.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub rest: BTreeMap<String, Value>,
}

/// What ends a sequence.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a text, a list of texts, or a list of token ids")]
pub(crate) enum TinkerStop {
    /// A text.
    Text(String),
    /// Token ids; none at all has nothing end it, the end of a turn neither.
    Ids(Vec<i64>),
    /// Texts.
    Texts(Vec<String>),
}

impl TinkerSamplingParams {
    /// Returns the same fields under the names that they have elsewhere.
    pub(crate) fn fields(&self) -> SamplingFields {
        let (stop, stop_token_ids, ignores_eos) = match self.stop.clone() {
            None => (None, None, false),
            Some(TinkerStop::Text(text)) => (Some(Stop::One(text)), None, false),
            Some(TinkerStop::Texts(texts)) => (Some(Stop::Many(texts)), None, false),
            Some(TinkerStop::Ids(ids)) => {
                let ends_nowhere = ids.is_empty();
                (None, Some(ids), ends_nowhere)
            }
        };
        SamplingFields {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            // -1, which is no seed elsewhere, is one here.
            seed: self.seed.map(|seed| seed.rem_euclid(i64::MAX)),
            stop,
            stop_token_ids,
            ignore_eos: Some(ignores_eos),
            // Texts that end a sequence are looked for in all of its text.
            skip_special_tokens: Some(false),
            ..SamplingFields::default()
        }
    }
}
