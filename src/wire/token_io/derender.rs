//! The wire shapes of `POST /v1/chat/completions/derender` and `/v1/completions/derender`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    derender_input::{ChunkToDerender, ResponseToDerender, TokenCount},
    rules,
};
use crate::{
    TokenId,
    wire::{
        answer::{
            output::{DetailedUsage, FinishReason, StopReason},
            sampling_mask::SamplingMask,
            weight_versions::WeightVersionSpan,
        },
        body::{Body, Rules},
        chat_completions::types::{ChatCompletion, ChatCompletionRequest, ChoiceLogprobs, ChunkToolCall},
        completions::types::{CompletionAnswer, CompletionChunkChoice, CompletionRequest},
    },
};

/// What a client carries from one event of a stream to the next. The fields are vLLM's, but the last; those that are
/// not used here stay at their defaults.
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub(crate) struct StreamState {
    pub prev_tokens: Vec<String>,
    pub prefix_offset: usize,
    pub read_offset: usize,
    /// Whether the role was sent.
    pub role_sent: bool,
    pub logprob_context_token_ids: Vec<TokenId>,
    /// Characters of the tokens so far, where log-probs are reported.
    pub logprob_text_offset: u32,
    /// The tokens so far.
    pub output_token_ids: Vec<TokenId>,
    /// How many of them each event had.
    pub output_chunk_lens: Vec<TokenCount>,
    /// How many of them are known to be reasoning.
    pub reasoning_tokens: TokenCount,
    /// Whether a call was sent.
    pub tools_streamed: bool,
    /// The ids of the calls that were sent.
    pub last_tool_call_ids: Vec<String>,
    /// The end of the prompt.
    pub prompt_token_ids: Vec<TokenId>,
}

/// An answer of `/inference/v1/generate`, or with `stream` one event of its stream.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct DerenderChatRequest {
    /// Whether an event is to be derendered.
    pub stream: Option<bool>,
    /// One of the served names; absent or empty is any.
    pub model: Option<String>,
    /// The answer.
    pub generate_response: Option<ResponseToDerender>,
    /// The event.
    pub generate_chunk: Option<ChunkToDerender>,
    /// What the event before it gave; null for the first one.
    pub stream_state: Option<StreamState>,
    /// Tokens of the prompt, for usage; where it is not given, those of the prompt that is, or 0.
    pub prompt_tokens: Option<TokenCount>,
    /// The prompt, as the render gave it.
    pub prompt_token_ids: Option<Vec<TokenId>>,
    /// The request that was rendered.
    pub chat_request: Option<Box<ChatCompletionRequest>>,
}

impl Body for DerenderChatRequest {
    const RULES: &'static Rules = &rules::DERENDER_CHAT;
}

/// A whole answer, or an event of one.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum DerenderedChat {
    Whole(Box<ChatCompletion>),
    Event(Box<DerenderedChatChunk>),
}

/// An event of a completion's stream, and what the next one needs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DerenderedChatChunk {
    pub chunk: WholeChatChunk,
    pub stream_state: StreamState,
}

/// An event with all its fields; those that say nothing are null.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WholeChatChunk {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<WholeChatChoice>,
    pub usage: Option<DetailedUsage>,
    pub system_fingerprint: Option<&'static str>,
    pub prompt_token_ids: Option<Vec<TokenId>>,
    pub prompt_text: Option<String>,
    pub metrics: Option<u8>,
    pub kv_transfer_params: Option<u8>,
}

/// What an event adds to a choice.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WholeChatChoice {
    pub index: usize,
    pub delta: WholeDelta,
    pub logprobs: Option<ChoiceLogprobs>,
    pub finish_reason: Option<FinishReason>,
    pub stop_reason: Option<StopReason>,
    pub token_ids: Option<Vec<TokenId>>,
    /// As the event has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed_experts: Option<String>,
    /// As the event has it: for each token the ids that it was drawn from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Vec<TokenId>>>)]
    pub sampling_mask: Option<SamplingMask>,
    pub weight_versions: Option<Vec<WeightVersionSpan>>,
    /// The names of calls that the model made after the first one and that are left out, where the request wants one only;
    /// absent where none are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub dropped_tool_calls: Vec<String>,
}

/// What an event adds to a message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WholeDelta {
    pub role: Option<String>,
    pub content: Option<String>,
    pub reasoning: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ChunkToolCall>,
}

/// Answers of `/inference/v1/generate`, or with `stream` one event of one of its streams.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct DerenderCompletionRequest {
    /// Whether an event is to be derendered.
    pub stream: Option<bool>,
    /// One of the served names; absent or empty is any.
    pub model: Option<String>,
    /// One answer for each prompt.
    pub generate_responses: Option<Vec<ResponseToDerender>>,
    /// The event.
    pub generate_chunk: Option<ChunkToDerender>,
    /// What the event before it gave; null for the first one.
    pub stream_state: Option<StreamState>,
    /// Tokens of the prompts, for usage: one number an answer, or with `stream` one number; where it is not given, those of the
    /// prompts that are, or 0.
    pub prompt_tokens: Option<PromptTokens>,
    /// The prompts, as the render gave them: one list an answer, or with `stream` one list.
    pub prompt_token_ids: Option<PromptIds>,
    /// The request that was rendered.
    pub completion_request: Option<CompletionRequest>,
}

impl Body for DerenderCompletionRequest {
    const RULES: &'static Rules = &rules::DERENDER_COMPLETION;
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a number or a list of numbers")]
pub(crate) enum PromptTokens {
    One(TokenCount),
    Each(Vec<TokenCount>),
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a list of token ids or a list of such lists")]
pub(crate) enum PromptIds {
    One(Vec<TokenId>),
    Each(Vec<Option<Vec<TokenId>>>),
}

/// A whole answer, or an event of one.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum DerenderedCompletion {
    Whole(Box<CompletionAnswer>),
    Event(Box<DerenderedCompletionChunk>),
}

/// An event of a completion's stream, and what the next one needs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DerenderedCompletionChunk {
    pub chunk: WholeCompletionChunk,
    pub stream_state: StreamState,
}

/// An event with all its fields; those that say nothing are null.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WholeCompletionChunk {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<CompletionChunkChoice>,
    pub usage: Option<DetailedUsage>,
    pub system_fingerprint: Option<&'static str>,
    pub metrics: Option<u8>,
    pub kv_transfer_params: Option<u8>,
}
