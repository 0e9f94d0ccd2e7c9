//! The wire shapes of `POST /v1/completions`.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{prompt_input::PromptInput, rules};
use crate::{
    TokenId,
    json::Value,
    wire::{
        answer::{
            metrics::{PerRequestMetrics, StreamedMetrics},
            output::{DetailedUsage, FinishReason, Nullable, PromptLogprobs, StopReason, StreamedUsage},
            sampling_mask::SamplingMask,
            weight_versions::{PromptWeightVersion, WeightVersionSpan},
        },
        body::{Body, Rules},
        fields::{of_sglang::SglangFields, sampling::SamplingFields, stream_options::StreamOptions},
    },
};

/// Texts or token ids to be continued. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CompletionRequest {
    /// What to continue.
    pub prompt: Option<PromptInput>,
    /// One of the served names; absent or empty is any.
    pub model: Option<String>,
    /// Let the tokenizer add its own special tokens to texts (default true).
    pub add_special_tokens: Option<bool>,
    /// Tokens to generate (default 16); clamped to the room that the prompt leaves. 0 is served with `echo` only.
    pub max_tokens: Option<i64>,
    /// Report log-probs with this many alternatives; -1 is the whole vocabulary.
    pub logprobs: Option<i64>,
    /// Repeat the prompt before its continuation; with `logprobs`, its log-probs too.
    pub echo: Option<bool>,
    /// Refused: this is no model for filling in.
    pub suffix: Option<String>,
    /// Refused: prompts are texts or token ids.
    #[schema(value_type = Option<Object>)]
    pub prompt_embeds: Option<serde_json::Value>,
    /// Answer with server-sent events.
    pub stream: Option<bool>,
    /// What the stream reports besides choices.
    pub stream_options: Option<StreamOptions>,
    /// Becomes part of the answer's id; the header `X-Request-Id` wins.
    pub request_id: Option<String>,
    /// The client's name for the session; the header `X-Session-ID` wins.
    pub session_id: Option<String>,
    /// Arguments for a server's own extensions, of which `session_id` is read.
    #[schema(value_type = Option<Object>)]
    pub vllm_xargs: Option<Value>,
    /// Taken for `session_id` where that is not given.
    pub prompt_cache_key: Option<String>,
    /// The experts that the first tokens of the prompt go through, in each layer: what `routed_experts` of an answer is,
    /// NeMo-RL's `nrlre1:` form of it, or lists of lists of lists. Where all experts of a token in a layer are -1, and
    /// after the last token that is given any, the model chooses as ever.
    #[schema(value_type = Option<Object>)]
    pub routed_experts: Option<serde_json::Value>,
    /// How to sample.
    #[serde(flatten)]
    pub sampling: SamplingFields,
    #[serde(flatten)]
    pub sglang: SglangFields,
}

impl Body for CompletionRequest {
    const RULES: &'static Rules = &rules::RULES;
}

/// A finished answer. Fields that tito does not have are there and null, as vLLM's clients expect them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CompletionAnswer {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<CompletionChoice>,
    pub service_tier: Option<u8>,
    pub system_fingerprint: &'static str,
    pub usage: DetailedUsage,
    pub kv_transfer_params: Option<u8>,
    pub ec_transfer_params: Option<u8>,
    /// With `--enable-per-request-metrics`; null for several sequences.
    pub metrics: Option<PerRequestMetrics>,
}

/// One continuation; those of the first prompt come first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CompletionChoice {
    pub index: usize,
    pub text: String,
    pub logprobs: Option<CompletionLogprobs>,
    pub finish_reason: FinishReason,
    pub stop_reason: Option<StopReason>,
    /// Every sampled token, the stop token included, with `return_token_ids`.
    pub token_ids: Option<Vec<TokenId>>,
    #[schema(value_type = Option<Vec<Option<Object>>>)]
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// As the answer that this is derendered of has it; a completion scores the prompt of each choice by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub prompt_weight_version: Option<PromptWeightVersion>,
    /// The prompt, with `return_token_ids`.
    pub prompt_token_ids: Option<Vec<TokenId>>,
    /// The experts of all tokens but the last one, with `--enable-return-routed-experts`: an `.npy` file in base64 of the
    /// shape (tokens, layers, experts of a token).
    pub routed_experts: Option<String>,
    /// With `return_sampling_mask`: for each token the ids that it was drawn from, itself among them, ascending.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Vec<TokenId>>>)]
    pub sampling_mask: Option<SamplingMask>,
    /// Which weights sampled which tokens, with `return_weight_versions`.
    pub weight_versions: Option<Vec<WeightVersionSpan>>,
}

/// Log-probs in parallel lists, one entry a token.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct CompletionLogprobs {
    /// Characters of the text before the token, going by the tokens' names.
    pub text_offset: Vec<usize>,
    /// Null for the first token of a prompt.
    pub token_logprobs: Vec<Option<f32>>,
    /// The token's text, or `token_id:N`.
    pub tokens: Vec<String>,
    /// Alternatives by name.
    pub top_logprobs: Vec<Option<IndexMap<String, f32>>>,
}

/// One event of a stream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CompletionChunk {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<CompletionChunkChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<StreamedUsage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_fingerprint: Option<&'static str>,
    /// Null, as there is nothing to transfer; absent in the last event with usage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_transfer_params: Nullable<u8>,
    /// In the last event, with usage and `--enable-per-request-metrics`; absent for several sequences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<StreamedMetrics>,
}

/// What one event adds to a choice.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CompletionChunkChoice {
    pub index: usize,
    pub text: String,
    pub logprobs: Option<CompletionLogprobs>,
    pub finish_reason: Option<FinishReason>,
    pub stop_reason: Option<StopReason>,
    /// The prompt, in the first event of a choice.
    pub prompt_token_ids: Option<Vec<TokenId>>,
    pub token_ids: Option<Vec<TokenId>>,
    /// As in a whole answer, in the last event of a choice; absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed_experts: Option<String>,
    /// With `return_sampling_mask`: for each token the ids that it was drawn from, itself among them, ascending.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Vec<TokenId>>>)]
    pub sampling_mask: Option<SamplingMask>,
    /// Which weights sampled which tokens, in the last event of a choice, with `return_weight_versions`.
    pub weight_versions: Option<Vec<WeightVersionSpan>>,
}
