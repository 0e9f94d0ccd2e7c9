//! The wire shapes of `/v1/responses`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::rules;
use crate::{
    TokenId,
    chat::TokenIds,
    json::Value,
    trajectory::Said,
    wire::{
        answer::{
            metrics::PerRequestMetrics, token_continuity::TokenContinuity, tool_notices::ToolNotices,
            weight_versions::WeightVersionSpan,
        },
        body::{Body, Rules},
        fields::{sampling::SamplingFields, tools::WordOrObject},
        said::SaidFields,
    },
};

/// A conversation to be continued, in items. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub struct ResponsesRequest {
    /// A text, or the items of the conversation, oldest first. The last of the model's own items may carry
    /// `prompt_token_ids` and `generation_token_ids`; it is continued from exactly these.
    #[schema(value_type = Object)]
    pub input: Box<RawValue>,
    /// One of the served names; absent or empty is any.
    pub model: Option<String>,
    /// Becomes the first system message.
    pub instructions: Option<String>,
    /// The stored response that is continued; its ids are kept to the letter.
    pub previous_response_id: Option<String>,
    /// Keep the response, so that it can be asked for and continued by its id (default true).
    pub store: Option<bool>,
    /// Answer at once and generate afterwards; the response is asked for by its id.
    pub background: Option<bool>,
    /// Answer with server-sent events.
    pub stream: Option<bool>,
    /// Functions, groups of functions and custom tools that the template may show. Tools that a server would run are
    /// not shown, and named in the answer.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
    /// `auto`, `none`, `required`, or an object that names one tool, `{"type": "function", "name": "f"}`.
    #[schema(value_type = Option<WordOrObject>)]
    pub tool_choice: Option<Value>,
    /// False keeps the first call of an answer only (default true).
    pub parallel_tool_calls: Option<bool>,
    /// `format` says what the answer must be.
    pub text: Option<TextConfig>,
    /// `effort` says how much to think, for templates that read it.
    #[schema(value_type = Option<Object>)]
    pub reasoning: Option<Value>,
    /// Tokens to generate; clamped to the room that the prompt leaves.
    pub max_output_tokens: Option<i64>,
    /// Of tools that a server calls itself; there are none.
    pub max_tool_calls: Option<i64>,
    /// What the answer reports besides items: `message.output_text.logprobs`, `token_ids`.
    pub include: Option<Vec<String>>,
    /// Alternatives of each token, where log-probs are included.
    pub top_logprobs: Option<i64>,
    /// Comes back as it is.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
    /// `auto` cuts off the start of a prompt that is too long (default `disabled`).
    pub truncation: Option<String>,
    /// Comes back as it is.
    pub service_tier: Option<String>,
    /// Comes back as it is.
    pub user: Option<String>,
    /// Refused: there are no prompt templates.
    #[schema(value_type = Option<Object>)]
    pub prompt: Option<Value>,
    /// Refused: `previous_response_id` continues conversations.
    #[schema(value_type = Option<Object>)]
    pub conversation: Option<Value>,
    /// Refused: ids come on items, or from the store.
    #[schema(value_type = Option<Object>)]
    pub previous_input_messages: Option<Value>,
    /// Refused unless empty: nothing is compacted.
    #[schema(value_type = Option<Object>)]
    pub context_management: Option<Value>,
    /// Refused unless empty: the server's settings hold for all requests.
    #[schema(value_type = Option<Object>)]
    pub mm_processor_kwargs: Option<Value>,
    /// Report prompt and answer as text and ids.
    pub enable_response_messages: Option<bool>,
    /// The answer's id; a fresh one by default.
    pub request_id: Option<String>,
    /// The template to use, where the server trusts requests with it (`--trust-request-chat-template`).
    #[schema(value_type = Option<String>)]
    pub chat_template: Option<Value>,
    /// Further variables of the template.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Value>,
    /// Ids that the prompt must start with, whatever the items carry.
    #[schema(value_type = Option<Vec<u32>>)]
    pub required_prefix_token_ids: Option<TokenIds>,
    /// The whole prompt: items are not rendered.
    #[schema(value_type = Option<Vec<u32>>)]
    pub prompt_token_ids: Option<TokenIds>,
    /// Refused where false: items of reasoning continue the conversation.
    pub include_reasoning: Option<bool>,
    /// Refused, as on chat.
    #[schema(value_type = Option<Object>)]
    pub media_io_kwargs: Option<Value>,
    /// `prompt_token_ids` in it is the whole prompt; everything else is ignored.
    #[schema(value_type = Option<Object>)]
    pub kv_transfer_params: Option<Value>,
    /// The client's name for the conversation; the header `X-Session-ID` wins.
    pub session_id: Option<String>,
    /// Arguments for a server's own extensions, of which `session_id` is read.
    #[schema(value_type = Option<Object>)]
    pub vllm_xargs: Option<Value>,
    /// Taken for `session_id` where that is not given; comes back as it is.
    pub prompt_cache_key: Option<String>,
    /// Comes back, with its defaults filled in; nothing is done about it.
    pub prompt_cache_options: Option<PromptCacheOptions>,
    /// `in_memory` or `24h`; comes back, and nothing is done about it.
    pub prompt_cache_retention: Option<String>,
    /// Comes back as it is.
    pub safety_identifier: Option<String>,
    /// Report what became of the ids of earlier turns, drift included.
    pub return_token_continuity: Option<bool>,
    /// What the client says, where that is captured.
    #[serde(skip)]
    #[schema(ignore)]
    pub said: Option<Said>,
    /// How to sample.
    #[serde(flatten)]
    pub sampling: SamplingFields,
}

impl Body for ResponsesRequest {
    const RULES: &'static Rules = &rules::RULES;
    const SAID: Option<&'static SaidFields> =
        Some(&SaidFields { dialect: "responses", items: "input", system: Some("instructions") });

    fn take_said(&mut self, said: Said) {
        self.said = Some(said);
    }
}

/// How a cache of prompts is to be used.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PromptCacheOptions {
    /// `implicit` (the default) or `explicit`.
    #[serde(default = "implicit")]
    #[schema(required = false)]
    mode: String,
    /// Always `30m`.
    #[serde(default = "half_an_hour")]
    #[schema(required = false)]
    ttl: String,
    comparison_response_id: Option<String>,
}

fn implicit() -> String {
    "implicit".to_owned()
}

fn half_an_hour() -> String {
    "30m".to_owned()
}

/// What the text of an answer must be.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TextConfig {
    /// The form of the answer.
    pub format: Option<TextFormat>,
    /// Comes back as it is.
    pub verbosity: Option<String>,
}

/// The form of an answer.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct TextFormat {
    /// `text`, `json_object` or `json_schema`.
    #[serde(rename = "type")]
    pub kind: String,
    /// With `json_schema`.
    pub name: Option<String>,
    /// With `json_schema`.
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Value>,
    /// With `json_schema`.
    pub description: Option<String>,
    /// With `json_schema`; an answer always keeps to the schema, whatever this says.
    pub strict: Option<bool>,
}

impl Serialize for TextFormat {
    /// With the fields that the kind has, also those that are null.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &self.kind)?;
        if self.kind == "json_schema" {
            map.serialize_entry("name", &self.name)?;
            map.serialize_entry("schema", &self.schema)?;
            map.serialize_entry("description", &self.description)?;
            map.serialize_entry("strict", &self.strict)?;
        }
        map.end()
    }
}

/// A response as far as it is. Fields that tito does not have are there and null, as vLLM's clients expect them.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ResponseObject {
    pub id: String,
    pub created_at: u64,
    /// Why the response is `incomplete`.
    pub incomplete_details: Option<IncompleteDetails>,
    pub instructions: Option<String>,
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
    pub model: String,
    /// Always `response`.
    pub object: &'static str,
    pub output: Vec<OutputItem>,
    pub parallel_tool_calls: bool,
    pub temperature: f64,
    pub tool_choice: Value,
    #[schema(value_type = Vec<Object>)]
    pub tools: Vec<Value>,
    pub top_p: f64,
    pub background: bool,
    pub max_output_tokens: usize,
    pub max_tool_calls: Option<i64>,
    pub previous_response_id: Option<String>,
    pub prompt: Option<u8>,
    pub prompt_cache_options: Option<PromptCacheOptions>,
    pub prompt_cache_key: Option<String>,
    pub prompt_cache_retention: Option<String>,
    #[schema(value_type = Option<Object>)]
    pub reasoning: Option<Value>,
    pub safety_identifier: Option<String>,
    pub service_tier: String,
    pub status: Status,
    pub text: Option<TextConfig>,
    pub top_logprobs: Option<i64>,
    pub truncation: String,
    pub usage: Option<ResponseUsage>,
    pub user: Option<String>,
    /// With `--enable-per-request-metrics`, once the response has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<PerRequestMetrics>,
    pub presence_penalty: f64,
    pub frequency_penalty: f64,
    pub kv_transfer_params: Option<u8>,
    pub ec_transfer_params: Option<u8>,
    /// The prompt, with `enable_response_messages`.
    pub input_messages: Option<Vec<RawMessage>>,
    /// What was sampled, with `enable_response_messages`.
    pub output_messages: Option<Vec<RawMessage>>,
    /// Which weights sampled which tokens, with `return_weight_versions`, once the response has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_versions: Option<Vec<WeightVersionSpan>>,
    /// The names of calls that the model made after the first one and that are left out, where the request wants one only;
    /// absent where none are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub dropped_tool_calls: Vec<String>,
    /// Why the response `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ResponseError>,
    /// What became of the ids of earlier turns, where ids are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_continuity: Option<TokenContinuity>,
    /// What of the tools was not done as the request asks; absent where all was.
    #[serde(flatten)]
    pub notices: ToolNotices,
}

/// How far a response has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It waits.
    Queued,
    /// It is being generated.
    InProgress,
    /// The model ended it.
    Completed,
    /// The tokens to generate ran out.
    Incomplete,
    /// Somebody ended it.
    Cancelled,
    /// Something went wrong.
    Failed,
}

/// Why a response is incomplete.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct IncompleteDetails {
    /// `max_output_tokens`; or `repetition`, where `repetition_detection` ended the answer.
    pub reason: &'static str,
}

/// Why a response failed.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ResponseError {
    pub code: &'static str,
    pub message: String,
}

/// A text and its ids.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RawMessage {
    pub message: String,
    pub tokens: Vec<TokenId>,
    #[serde(rename = "type")]
    pub kind: &'static str,
}

/// Tokens that a response used.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ResponseUsage {
    pub input_tokens: usize,
    pub input_tokens_details: InputTokensDetails,
    pub output_tokens: usize,
    pub output_tokens_details: OutputTokensDetails,
    pub total_tokens: usize,
}

/// What usage says about the prompt.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct InputTokensDetails {
    /// Tokens that were not computed again.
    pub cached_tokens: usize,
    pub cache_write_tokens: usize,
    pub input_tokens_per_turn: Vec<usize>,
    pub cached_tokens_per_turn: Vec<usize>,
}

/// What usage says about what was sampled.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct OutputTokensDetails {
    pub reasoning_tokens: usize,
    pub tool_output_tokens: usize,
    pub output_tokens_per_turn: Vec<usize>,
    pub tool_output_tokens_per_turn: Vec<usize>,
}

/// One piece of what the model wrote. Sent back as it is, it continues the conversation from exactly its ids.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OutputItem {
    pub id: String,
    #[serde(flatten)]
    pub kind: ItemKind,
    /// Of all items of the answer, on its last one.
    #[serde(flatten)]
    pub tokens: Option<ItemTokens>,
}

/// What an item is.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ItemKind {
    /// What the model thought.
    Reasoning {
        #[schema(value_type = Vec<Object>)]
        summary: [(); 0],
        content: Vec<ContentPart>,
        encrypted_content: Option<u8>,
        status: Option<Status>,
    },
    /// What it said.
    Message { content: Vec<ContentPart>, role: &'static str, status: Status, phase: Option<u8> },
    /// A function that it calls.
    FunctionCall {
        arguments: String,
        call_id: String,
        name: String,
        #[serde(rename = "async")]
        is_async: Option<u8>,
        caller: Option<u8>,
        /// The group of the function.
        namespace: Option<String>,
        status: Status,
    },
    /// A custom tool that it calls.
    CustomToolCall { call_id: String, name: String, input: String, namespace: Option<String>, status: Status },
}

/// A piece of an item.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart {
    /// Of a message.
    OutputText {
        #[schema(value_type = Vec<Object>)]
        annotations: [(); 0],
        text: String,
        logprobs: Option<Vec<Logprob>>,
    },
    /// Of reasoning.
    ReasoningText { text: String },
}

/// The ids of an answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ItemTokens {
    /// What the model saw.
    pub prompt_token_ids: Vec<TokenId>,
    /// What it sampled, the stop token included.
    pub generation_token_ids: Vec<TokenId>,
    /// One log-prob for each sampled token.
    pub generation_log_probs: Vec<f32>,
    /// The experts of all tokens, with `--enable-return-routed-experts`, as NeMo-RL has them on messages:
    /// `nrlre1:<dtype>:<SxLxK>:<base64>`; those of the last token, which was not computed, are 0, 1 and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed_experts: Option<String>,
}

/// One sampled token.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Logprob {
    #[serde(flatten)]
    pub token: TopLogprob,
    pub top_logprobs: Vec<TopLogprob>,
}

/// A token and its log-prob.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct TopLogprob {
    /// The token's text, or `token_id:N`.
    pub token: String,
    /// Natural logarithm.
    pub logprob: f32,
    pub bytes: Vec<u8>,
}
