//! The wire shapes of `POST /inference/v1/generate`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sampling_params::SamplingParamsFields;
use crate::{
    TokenId,
    api::{
        answer::output::{DetailedUsage, FinishReason, PromptLogprobs, StopReason, StreamedUsage},
        body::validate::{self, Body, Rules},
        fields::stream_options::StreamOptions,
    },
};

/// Token ids to be continued. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct GenerateRequest {
    /// The prompt, taken verbatim; at least one id.
    #[schema(value_type = Vec<u32>)]
    pub token_ids: Vec<i64>,
    /// How to sample.
    pub sampling_params: SamplingParamsFields,
    /// One of the served names; absent or empty is any.
    pub model: Option<String>,
    /// Becomes part of the answer's id; the header `X-Request-Id` wins.
    pub request_id: Option<String>,
    /// Report the prompt's ids too.
    pub return_token_ids: Option<bool>,
    /// `tokens` (the default), or `text` to report the text as well.
    #[serde(default)]
    pub output_mode: OutputMode,
    /// Answer with server-sent events.
    pub stream: Option<bool>,
    /// What the stream reports besides choices.
    pub stream_options: Option<StreamOptions>,
    /// Share cached prefixes only with requests of the same salt.
    #[schema(value_type = Option<String>)]
    pub cache_salt: Option<serde_json::Value>,
    /// Refused unless null: images, audio and video.
    #[schema(value_type = Option<Object>)]
    pub features: Option<serde_json::Value>,
    /// Refused unless null or empty: images, audio and video.
    #[schema(value_type = Option<Vec<Object>>)]
    pub content_parts: Option<serde_json::Value>,
}

impl Body for GenerateRequest {
    const RULES: &'static Rules = &validate::ANY;
}

/// Whether an answer has text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OutputMode {
    /// Ids only.
    #[default]
    Tokens,
    /// Ids and their text.
    Text,
}

/// A finished answer. Fields that tito does not have are there and null, as vLLM's clients expect them.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GenerateAnswer {
    pub(super) request_id: String,
    pub(super) model: String,
    pub(super) created: u64,
    pub(super) usage: DetailedUsage,
    #[schema(value_type = Option<Vec<Option<Object>>>)]
    pub(super) prompt_logprobs: Option<PromptLogprobs>,
    pub(super) prompt_token_id_logprobs: Option<u8>,
    /// The prompt, with `return_token_ids`.
    pub(super) prompt_token_ids: Option<Vec<TokenId>>,
    pub(super) mm_placeholders: Option<u8>,
    pub(super) metrics: Option<u8>,
    pub(super) kv_transfer_params: Option<u8>,
    pub(super) ec_transfer_params: Option<u8>,
    pub(super) output_mode: OutputMode,
    pub(super) choices: Vec<GenerateChoice>,
}

/// One of `n` answers, or what one event of a stream adds to it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GenerateChoice {
    pub(super) index: usize,
    pub(super) finish_reason: Option<FinishReason>,
    pub(super) stop_reason: Option<StopReason>,
    /// Every sampled token, the stop token included.
    pub(super) token_ids: Vec<TokenId>,
    pub(super) routed_experts: Option<u8>,
    pub(super) sampling_mask: Option<u8>,
    /// Which weights sampled which tokens, once the choice has ended; null where that is not known exactly.
    pub(super) weight_versions: Option<Vec<WeightVersionSpan>>,
    /// Only with `output_mode` `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    pub(super) logprobs: Option<GenerateLogprobs>,
}

/// Tokens that the same weights sampled.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WeightVersionSpan {
    /// `default` for the weights that were loaded, else how often they were replaced.
    pub(super) version: String,
    /// The first token.
    pub(super) start: usize,
    /// Behind the last one.
    pub(super) end: usize,
}

/// The log-probs of a choice or of a piece of it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum GenerateLogprobs {
    /// By id.
    Tokens {
        /// One entry for each sampled token.
        content: Vec<IdLogprobs>,
    },
    /// By text, with `output_mode` `text`.
    Text {
        /// One entry for each sampled token.
        content: Vec<TextLogprobs>,
    },
}

/// A token and its log-prob.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct IdLogprob {
    /// `token_id:N`: the id once more, as clients read it that expect the log-probs of a chat.
    pub(super) token: String,
    pub(super) token_id: TokenId,
    /// Natural logarithm, at least -9999.
    pub(super) logprob: f32,
    /// 1 for the most probable token.
    pub(super) rank: Option<u32>,
}

/// A sampled token and its alternatives, itself first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct IdLogprobs {
    #[serde(flatten)]
    pub(super) token: IdLogprob,
    pub(super) top_logprobs: Vec<IdLogprob>,
}

/// A token's text and its log-prob.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TextLogprob {
    /// The token's text, or `token_id:N`.
    pub(super) token: String,
    /// Natural logarithm, at least -9999.
    pub(super) logprob: f32,
    /// Null where the token is `token_id:N`.
    pub(super) bytes: Option<Vec<u8>>,
}

/// A sampled token and its alternatives, itself first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TextLogprobs {
    #[serde(flatten)]
    pub(super) token: TextLogprob,
    pub(super) top_logprobs: Vec<TextLogprob>,
}

/// One event of a stream.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GenerateChunk {
    pub(super) request_id: String,
    /// Null but in the last event, unless every event has it.
    pub(super) usage: Option<ChunkUsage>,
    /// In the first event, with `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_token_ids: Option<Vec<TokenId>>,
    pub(super) output_mode: OutputMode,
    pub(super) choices: Vec<GenerateChoice>,
}

/// Usage in a stream: with nulls where it is that of a choice so far, without them at the end, as in vLLM.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum ChunkUsage {
    /// Of one choice so far.
    SoFar(DetailedUsage),
    /// Of all of them.
    Last(StreamedUsage),
}

/// What `/v1/chat/completions/render` gives, and `/inference/v1/generate` takes.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api::token_io) struct RenderedRequest {
    pub(in crate::api::token_io) request_id: String,
    /// The prompt.
    pub(in crate::api::token_io) token_ids: Vec<TokenId>,
    /// Where each token stands in the text, in characters; with `return_token_offsets`, where it is known.
    #[schema(value_type = Option<Vec<Vec<usize>>>)]
    pub(in crate::api::token_io) token_offsets: Option<Vec<(usize, usize)>>,
    pub(in crate::api::token_io) features: Option<u8>,
    pub(in crate::api::token_io) content_parts: Option<u8>,
    /// How to sample, defaults filled in.
    #[schema(value_type = Object)]
    pub(in crate::api::token_io) sampling_params: serde_json::Map<String, serde_json::Value>,
    pub(in crate::api::token_io) model: Option<String>,
    pub(in crate::api::token_io) reasoning_ended: Option<bool>,
    pub(in crate::api::token_io) reasoning_parser_kwargs: Option<u8>,
    pub(in crate::api::token_io) return_token_ids: Option<bool>,
    /// Always `tokens`.
    pub(in crate::api::token_io) output_mode: &'static str,
    pub(in crate::api::token_io) stream: bool,
    pub(in crate::api::token_io) stream_options: Option<RenderedStreamOptions>,
    #[schema(value_type = Option<String>)]
    pub(in crate::api::token_io) cache_salt: Option<serde_json::Value>,
    pub(in crate::api::token_io) priority: i64,
    pub(in crate::api::token_io) kv_transfer_params: Option<u8>,
    pub(in crate::api::token_io) ec_transfer_params: Option<u8>,
}

impl Default for RenderedRequest {
    /// Makes a request without ids and parameters, with all other fields at their defaults.
    fn default() -> Self {
        Self {
            request_id: String::new(),
            token_ids: Vec::new(),
            token_offsets: None,
            features: None,
            content_parts: None,
            sampling_params: serde_json::Map::new(),
            model: None,
            reasoning_ended: None,
            reasoning_parser_kwargs: None,
            return_token_ids: None,
            output_mode: "tokens",
            stream: false,
            stream_options: None,
            cache_salt: None,
            priority: 0,
            kv_transfer_params: None,
            ec_transfer_params: None,
        }
    }
}

/// What a stream reports, defaults filled in.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(in crate::api::token_io) struct RenderedStreamOptions {
    include_usage: bool,
    continuous_usage_stats: bool,
}

impl From<StreamOptions> for RenderedStreamOptions {
    fn from(options: StreamOptions) -> Self {
        Self {
            include_usage: options.include_usage.unwrap_or(false),
            continuous_usage_stats: options.continuous_usage_stats.unwrap_or(false),
        }
    }
}
