//! The wire shapes of `POST /inference/v1/generate`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use super::features::Features;
use crate::{
    TokenId,
    foreign_fields::{OF_GENERATE, engine_params},
    json::{Node, Object, Value},
    pydantic::Schema,
    wire::{
        answer::{
            mm_placeholders::MmPlaceholders,
            output::{DetailedUsage, FinishReason, PromptLogprobs, StopReason, StreamedUsage},
            sampling_mask::SamplingMask,
            weight_versions::{PromptWeightVersion, WeightVersionSpan},
        },
        body::{Body, Rules},
        chat_completions::types::{AnswerMessage, ChoiceLogprobs},
        error::ApiError,
        fields::{sampling::SamplingFields, stream_options::StreamOptions},
    },
};

/// Token ids to be continued. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct GenerateRequest {
    /// The prompt, taken verbatim; at least one id.
    #[schema(value_type = Vec<u32>)]
    pub token_ids: Vec<i64>,
    /// How to sample.
    pub sampling_params: SamplingParamsFields,
    /// One of the served names; absent or empty is any.
    pub model: Option<String>,
    /// Becomes part of the answer's id; the header `X-Request-Id` wins.
    pub request_id: Option<String>,
    /// The client's name for the session; the header `X-Session-ID` wins.
    pub session_id: Option<String>,
    /// Taken for `session_id` where that is not given.
    pub prompt_cache_key: Option<String>,
    /// Report the prompt's ids too.
    pub return_token_ids: Option<bool>,
    /// `tokens` (the default), `text` to report the text as well, or `derender` to report the message of a chat.
    #[serde(default)]
    pub output_mode: OutputMode,
    /// What to know of the chat whose message is reported, as its render gave it; with `derender`, ignored otherwise.
    #[schema(value_type = Option<ParseContext>)]
    pub parse_context: Option<Value>,
    /// Whether the prompt has ended the thoughts, so that a structured output begins at once.
    pub reasoning_ended: Option<bool>,
    /// What decides whether the model thinks, as a render gave it: a structured output begins after the thoughts.
    pub reasoning_parser_kwargs: Option<ReasoningParserKwargs>,
    /// Answer with server-sent events.
    pub stream: Option<bool>,
    /// What the stream reports besides choices.
    pub stream_options: Option<StreamOptions>,
    /// Share cached prefixes only with requests of the same salt.
    #[schema(value_type = Option<String>)]
    pub cache_salt: Option<serde_json::Value>,
    /// The experts that the first tokens of the prompt go through, in each layer: what `routed_experts` of an answer is,
    /// NeMo-RL's `nrlre1:` form of it, or lists of lists of lists. Where all experts of a token in a layer are -1, and
    /// after the last token that is given any, the model chooses as ever.
    #[schema(value_type = Option<Object>)]
    pub routed_experts: Option<serde_json::Value>,
    /// The images of the ids, which have all their placeholders: hashes and places, as a render of this server gave them.
    /// Tensors are refused.
    #[schema(value_type = Option<Features>)]
    pub features: Option<serde_json::Value>,
    /// The images of the ids, in their order, as `{"type": "image_url", "url": …}`. The ids have one placeholder for each, or
    /// all of them.
    #[schema(value_type = Option<Vec<Object>>)]
    pub content_parts: Option<serde_json::Value>,
}

/// What decides whether the model thinks. Fields are vLLM's; it takes no other.
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReasoningParserKwargs {
    /// The variables with which the prompt was rendered.
    #[serde(default)]
    #[schema(required = false, value_type = Object)]
    pub chat_template_kwargs: Object,
}

impl Body for GenerateRequest {
    const RULES: &'static Rules =
        &Rules { before: Some(check_params), foreign: &OF_GENERATE, ..Rules::new(&Schema::Any) };
}

/// Refuses `sampling_params` with names that vLLM's engine does not have.
fn check_params(body: &mut Node<'_>) -> Result<(), ApiError> {
    let Some((name, here)) = engine_params::unknown(body) else { return Ok(()) };
    let hint = here.map(|here| format!("; `{here}` is what it is called there")).unwrap_or_default();
    Err(ApiError::invalid(name.to_owned(), format!("`sampling_params` has no `{name}` in vLLM{hint}")))
}

/// Whether an answer has text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutputMode {
    /// Ids only.
    #[default]
    Tokens,
    /// Ids and their text.
    Text,
    /// Ids and the message that they are.
    Derender,
}

/// What a server has to know of a chat to read its answer. Fields are vLLM's.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
pub(crate) struct ParseContext {
    /// The tools of the chat.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
    /// Whether the model calls them: a word, or an object that names one.
    #[serde(default = "no_calls")]
    #[schema(required = false)]
    pub tool_choice: Value,
    /// False keeps the first call only.
    #[serde(default = "as_many")]
    #[schema(required = false)]
    pub parallel_tool_calls: Option<bool>,
    /// Whether the message has the reasoning.
    #[serde(default = "includes_reasoning")]
    #[schema(required = false)]
    pub include_reasoning: bool,
    /// The variables with which the prompt was rendered.
    #[serde(default)]
    #[schema(required = false, value_type = Object)]
    pub chat_template_kwargs: Object,
    /// The calls in the conversation, of which no format here makes ids.
    #[serde(default)]
    #[schema(required = false)]
    pub history_tool_call_cnt: usize,
    /// With `echo`, the text that the message repeats before the answer. Not vLLM's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo: Option<String>,
    /// The role of the message, if it is not that of answers. Not vLLM's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Whether a part of the conversation was cut off, so that the message carries no ids. Absent where it was not. Not vLLM's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub prompt_is_cut: bool,
}

impl ParseContext {
    /// The names of the fields.
    pub(crate) const FIELDS: [&str; 9] = [
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "include_reasoning",
        "chat_template_kwargs",
        "history_tool_call_cnt",
        "echo",
        "role",
        "prompt_is_cut",
    ];
}

fn no_calls() -> Value {
    Value::from("none")
}

#[expect(clippy::unnecessary_wraps, reason = "the field may be null")]
fn as_many() -> Option<bool> {
    Some(true)
}

fn includes_reasoning() -> bool {
    true
}

/// A finished answer. Fields that tito does not have are there and null, as vLLM's clients expect them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GenerateAnswer {
    pub request_id: String,
    pub model: String,
    pub created: u64,
    pub usage: DetailedUsage,
    #[schema(value_type = Option<Vec<Option<Object>>>)]
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// The weights that scored the prompt, where a choice began with others; left out where all choices began with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub prompt_weight_version: Option<PromptWeightVersion>,
    /// With `prompt_logprob_token_ids`: a matrix with a row for each position, as an `.npy` file of float32 in base64.
    pub prompt_token_id_logprobs: Option<String>,
    /// The prompt, with `return_token_ids`.
    pub prompt_token_ids: Option<Vec<TokenId>>,
    /// Where the images of the prompt are in it, with `return_token_ids`.
    pub mm_placeholders: Option<MmPlaceholders>,
    pub metrics: Option<u8>,
    pub kv_transfer_params: Option<u8>,
    pub ec_transfer_params: Option<u8>,
    pub output_mode: OutputMode,
    pub choices: Vec<GenerateChoice>,
}

/// One of `n` answers, or what one event of a stream adds to it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GenerateChoice {
    pub index: usize,
    pub finish_reason: Option<FinishReason>,
    pub stop_reason: Option<StopReason>,
    /// Every sampled token, the stop token included.
    pub token_ids: Vec<TokenId>,
    /// The experts of all tokens but the last one, with `--enable-return-routed-experts`: an `.npy` file in base64 of the
    /// shape (tokens, layers, experts of a token).
    pub routed_experts: Option<String>,
    /// With `--return-sampling-mask`, or `return_sampling_mask` in `sampling_params`: for each token the ids that it was drawn
    /// from, itself among them, ascending.
    #[schema(value_type = Option<Vec<Vec<TokenId>>>)]
    pub sampling_mask: Option<SamplingMask>,
    /// Which weights sampled which tokens, once the choice has ended; null before.
    pub weight_versions: Option<Vec<WeightVersionSpan>>,
    /// Only with `output_mode` `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Only with `output_mode` `derender`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<AnswerMessage>,
    pub logprobs: Option<GenerateLogprobs>,
}

/// The log-probs of a choice or of a piece of it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum GenerateLogprobs {
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
    /// As a chat has them, with `output_mode` `derender`.
    Chat(ChoiceLogprobs),
}

/// A token and its log-prob.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct IdLogprob {
    /// `token_id:N`: the id once more, as clients read it that expect the log-probs of a chat.
    pub token: String,
    pub token_id: TokenId,
    /// Natural logarithm, at least -9999.
    pub logprob: f32,
    /// 1 for the most probable token.
    pub rank: Option<u32>,
}

/// A sampled token and its alternatives, itself first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IdLogprobs {
    #[serde(flatten)]
    pub token: IdLogprob,
    pub top_logprobs: Vec<IdLogprob>,
}

/// A token's text and its log-prob.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TextLogprob {
    /// The token's text, or `token_id:N`.
    pub token: String,
    /// Natural logarithm, at least -9999.
    pub logprob: f32,
    /// Null where the token is `token_id:N`.
    pub bytes: Option<Vec<u8>>,
}

/// A sampled token and its alternatives, itself first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TextLogprobs {
    #[serde(flatten)]
    pub token: TextLogprob,
    pub top_logprobs: Vec<TextLogprob>,
}

/// One event of a stream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GenerateChunk {
    pub request_id: String,
    /// Null but in the last event, unless every event has it.
    pub usage: Option<ChunkUsage>,
    /// In the first event, with `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<TokenId>>,
    /// In the first event, beside the ids of a prompt with images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mm_placeholders: Option<MmPlaceholders>,
    pub output_mode: OutputMode,
    pub choices: Vec<GenerateChoice>,
}

/// Usage in a stream: with nulls where it is that of a choice so far, without them at the end, as in vLLM.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum ChunkUsage {
    /// Of one choice so far.
    SoFar(DetailedUsage),
    /// Of all of them.
    Last(StreamedUsage),
}

/// What `/v1/chat/completions/render` gives, and `/inference/v1/generate` takes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RenderedRequest {
    pub request_id: String,
    /// The prompt.
    pub token_ids: Vec<TokenId>,
    /// Where each token stands in the text, in characters; with `return_token_offsets`, where it is known.
    #[schema(value_type = Option<Vec<Vec<usize>>>)]
    pub token_offsets: Option<Vec<(usize, usize)>>,
    /// The images of the prompt, for `/inference/v1/generate` of this server.
    pub features: Option<Features>,
    pub content_parts: Option<u8>,
    /// How to sample, defaults filled in.
    #[schema(value_type = Object)]
    pub sampling_params: RenderedParams,
    pub model: Option<String>,
    /// Whether the prompt has ended the thoughts; null where nobody reads them.
    pub reasoning_ended: Option<bool>,
    /// Null where nobody reads thoughts, and for a text completion.
    pub reasoning_parser_kwargs: Option<ReasoningParserKwargs>,
    pub return_token_ids: Option<bool>,
    /// Always `tokens`.
    pub output_mode: &'static str,
    /// What to know of a chat to read its answer; null for a text completion.
    pub parse_context: Option<ParseContext>,
    pub stream: bool,
    pub stream_options: Option<RenderedStreamOptions>,
    #[schema(value_type = Option<String>)]
    pub cache_salt: Option<serde_json::Value>,
    pub priority: i64,
    pub kv_transfer_params: Option<u8>,
    pub ec_transfer_params: Option<u8>,
    /// The experts that the prompt's first tokens are to go through, where the request says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub routed_experts: Option<serde_json::Value>,
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
            sampling_params: RenderedParams::default(),
            model: None,
            reasoning_ended: None,
            reasoning_parser_kwargs: None,
            return_token_ids: None,
            output_mode: "tokens",
            parse_context: None,
            stream: false,
            stream_options: None,
            cache_salt: None,
            priority: 0,
            kv_transfer_params: None,
            ec_transfer_params: None,
            routed_experts: None,
        }
    }
}

/// How to sample, in the order of its fields: each name once.
#[derive(Debug, Default)]
pub(crate) struct RenderedParams(Vec<(&'static str, serde_json::Value)>);

impl RenderedParams {
    /// Adds a field.
    pub(crate) fn put(&mut self, name: &'static str, value: serde_json::Value) {
        debug_assert!(self.0.iter().all(|(other, _)| *other != name), "{name} stands there already");
        self.0.push((name, value));
    }
}

impl Serialize for RenderedParams {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// What a stream reports, defaults filled in.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(crate) struct RenderedStreamOptions {
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

/// How to sample, without any default of the model's.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub(crate) struct SamplingParamsFields {
    /// Tokens to generate; absent and null are the room that the prompt leaves.
    #[serde(default)]
    #[schema(value_type = Option<i64>)]
    pub max_tokens: MaxTokens,
    /// Report log-probs with this many alternatives; -1 is the whole vocabulary.
    pub logprobs: Option<i64>,
    /// False keeps stop strings and `output_mode` `text` from being asked for (default true).
    pub detokenize: Option<bool>,
    /// Refused unless null.
    #[schema(value_type = Option<Vec<u32>>)]
    pub trace_decode_token_ids: Option<serde_json::Value>,
    /// Tokens whose log-probs are reported at positions of the prompt: a list of ids for all positions, or one for each, in
    /// which -1 is no token.
    #[schema(value_type = Option<Vec<Vec<i64>>>)]
    pub prompt_logprob_token_ids: Option<serde_json::Value>,
    /// The first of these positions (default 0), whose log-probs are those of the token after it.
    pub prompt_logprob_start: Option<i64>,
    /// The rest.
    #[serde(flatten)]
    pub sampling: SamplingFields,
}

/// The number of tokens to generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum MaxTokens {
    /// The number is as large as the model's own limit and the room allow.
    #[default]
    Absent,
    /// The request sets the number; null stands for the room.
    Given(Option<i64>),
}

impl<'de> Deserialize<'de> for MaxTokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::Given)
    }
}
