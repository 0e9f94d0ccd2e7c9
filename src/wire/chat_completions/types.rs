//! The wire shapes of `POST /v1/chat/completions`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rules;
use crate::{
    TokenId,
    chat::{FunctionTool, Message, TokenIds},
    json::{Document, Value},
    parser::ToolCall,
    trajectory::Said,
    wire::{
        answer::{
            metrics::{PerRequestMetrics, StreamedMetrics},
            mm_placeholders::MmPlaceholders,
            output::{DetailedUsage, FinishReason, Nullable, PromptLogprobs, StopReason, StreamedUsage},
            sampling_mask::SamplingMask,
            token_continuity::TokenContinuity,
            weight_versions::{PromptWeightVersion, WeightVersionSpan},
        },
        body::{Body, Rules},
        fields::{
            of_sglang::SglangFields, sampling::SamplingFields, stream_options::StreamOptions, tools::WordOrObject,
        },
        said::SaidFields,
        sglang::generate::SglangMetaInfo,
    },
};

/// A conversation to be continued. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatCompletionRequest {
    /// The conversation, oldest message first.
    pub messages: Vec<Message>,
    /// One of the served names; absent or empty is any.
    pub model: Option<String>,
    /// Ids that the prompt must start with, whatever the messages carry: prompt and generation of the latest turn.
    #[schema(value_type = Option<Vec<u32>>)]
    pub required_prefix_token_ids: Option<TokenIds>,
    /// The whole prompt: messages are not rendered.
    #[schema(value_type = Option<Vec<u32>>)]
    pub prompt_token_ids: Option<TokenIds>,
    /// The whole prompt on `/v1/chat/completions/tokens`; refused elsewhere.
    #[schema(value_type = Option<Vec<u32>>)]
    pub tokens: Option<TokenIds>,
    /// SGLang's name for `prompt_token_ids`.
    #[schema(value_type = Option<Vec<u32>>)]
    pub input_ids: Option<TokenIds>,
    /// The client's name for the conversation; the header `X-Session-ID` wins.
    pub session_id: Option<String>,
    /// Arguments for a server's own extensions, of which `session_id` is read.
    #[schema(value_type = Option<Object>)]
    pub vllm_xargs: Option<Value>,
    /// Taken for `session_id` where that is not given.
    pub prompt_cache_key: Option<String>,
    /// Report what became of the ids of earlier turns, drift included.
    pub return_token_continuity: Option<bool>,
    /// Tools that the template may show.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<FunctionTool>>,
    /// `auto` reads tool calls out of the answer (the default with tools), `none` does not, `required` forces one or more.
    /// An object, `{"type": "function", "function": {"name": "f"}}`, forces a call of one function.
    #[schema(value_type = Option<WordOrObject>)]
    pub tool_choice: Option<Value>,
    /// False keeps the first call of an answer only (default true).
    pub parallel_tool_calls: Option<bool>,
    /// False leaves reasoning out of the answer (default true); its tokens are reported all the same.
    pub include_reasoning: Option<bool>,
    /// Documents that the template may show.
    #[schema(value_type = Option<Vec<Object>>)]
    pub documents: Option<Vec<Value>>,
    /// How much to think, for templates that read it.
    pub reasoning_effort: Option<String>,
    /// End the prompt with the start of an assistant message (default true).
    pub add_generation_prompt: Option<bool>,
    /// End the prompt inside the last message.
    pub continue_final_message: Option<bool>,
    /// Let the tokenizer add its own special tokens (default false).
    pub add_special_tokens: Option<bool>,
    /// The template to use, where the server trusts requests with it (`--trust-request-chat-template`).
    #[schema(value_type = Option<String>)]
    pub chat_template: Option<Value>,
    /// Further variables of the template.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Value>,
    /// Tokens to generate; clamped to the room that the prompt leaves.
    pub max_completion_tokens: Option<i64>,
    /// The older spelling of `max_completion_tokens`.
    pub max_tokens: Option<i64>,
    /// Report the log-prob of each sampled token.
    pub logprobs: Option<bool>,
    /// Report this many alternatives too; -1 is the whole vocabulary.
    pub top_logprobs: Option<i64>,
    /// Put the last message in front of the answer that continues it; reports log-probs of the prompt too.
    pub echo: Option<bool>,
    /// Answer with server-sent events.
    pub stream: Option<bool>,
    /// What the stream reports besides choices.
    pub stream_options: Option<StreamOptions>,
    /// Becomes part of the answer's id; the header `X-Request-Id` wins.
    pub request_id: Option<String>,
    /// `prompt_token_ids` in it is the whole prompt; everything else is ignored.
    #[schema(value_type = Option<Object>)]
    pub kv_transfer_params: Option<Value>,
    /// Report the prompt as text.
    pub return_prompt_text: Option<bool>,
    /// SGLang's: report the prompt's ids with each choice. Refused in streams.
    pub return_prompt_token_ids: Option<bool>,
    /// SGLang's: report with each choice what its `/generate` says of a continuation, the log-probs of `logprobs` and
    /// `top_logprobs` included. A content that would be null is then an empty text. Refused in streams.
    pub return_meta_info: Option<bool>,
    /// Refused unless empty: the server's settings hold for all requests.
    #[schema(value_type = Option<Object>)]
    pub mm_processor_kwargs: Option<Value>,
    /// Refused unless empty, for the same reason.
    #[schema(value_type = Option<Object>)]
    pub media_io_kwargs: Option<Value>,
    /// The experts that the first tokens of the prompt go through, in each layer: what `routed_experts` of an answer is,
    /// NeMo-RL's `nrlre1:` form of it, or lists of lists of lists. Where all experts of a token in a layer are -1, and
    /// after the last token that is given any, the model chooses as ever.
    #[schema(value_type = Option<Object>)]
    pub routed_experts: Option<serde_json::Value>,
    /// What the client says, where that is captured.
    #[serde(skip)]
    #[schema(ignore)]
    pub said: Option<Said>,
    /// How to sample.
    #[serde(flatten)]
    pub sampling: SamplingFields,
    #[serde(flatten)]
    pub sglang: SglangFields,
}

impl ChatCompletionRequest {
    /// Takes what each conversation of a batch says, as it was written in the body of all of them.
    pub(crate) fn take_said_of_batch(conversations: &mut [Self], body: &str) {
        let (Some(fields), Ok(document)) = (Self::SAID, Document::parse(body)) else { return };
        for (conversation, said) in conversations.iter_mut().zip(fields.read_batch(&document.root)) {
            conversation.take_said(said);
        }
    }
}

impl Body for ChatCompletionRequest {
    const RULES: &'static Rules = &rules::RULES;
    const SAID: Option<&'static SaidFields> =
        Some(&SaidFields { dialect: "chat_completions", items: "messages", system: None });

    fn take_said(&mut self, said: Said) {
        self.said = Some(said);
    }
}

/// A finished answer. Fields that tito does not have are there and null, as vLLM's clients expect them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<Choice>,
    pub service_tier: Option<u8>,
    pub system_fingerprint: &'static str,
    pub usage: DetailedUsage,
    #[schema(value_type = Option<Vec<Option<Object>>>)]
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// The weights that scored the prompt, where a choice began with others; left out where all choices began with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub prompt_weight_version: Option<PromptWeightVersion>,
    /// The prompt, with `return_token_ids`.
    pub prompt_token_ids: Option<Vec<TokenId>>,
    /// Where the images of the prompt are in it, with `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mm_placeholders: Option<MmPlaceholders>,
    /// The prompt as text, with `return_prompt_text`; null where it came in ids.
    pub prompt_text: Option<String>,
    pub kv_transfer_params: Option<u8>,
    pub ec_transfer_params: Option<u8>,
    /// With `--enable-per-request-metrics`; null for several sequences.
    pub metrics: Option<PerRequestMetrics>,
    /// What became of the ids of earlier turns, where ids are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_continuity: Option<TokenContinuity>,
    /// What SGLang has at this place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sglext: Option<SglangExtension>,
}

/// What SGLang has beside OpenAI's answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct SglangExtension {
    /// With `return_routed_experts`: the experts of all tokens of the first choice but the last one, as int32 in base64, token by
    /// token, layer by layer.
    pub routed_experts: String,
}

/// One of `n` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Choice {
    pub index: usize,
    pub message: AnswerMessage,
    pub logprobs: Option<ChoiceLogprobs>,
    pub finish_reason: FinishReason,
    pub stop_reason: Option<StopReason>,
    /// Every sampled token, the stop token included, with `return_token_ids`.
    pub token_ids: Option<Vec<TokenId>>,
    /// The experts of all tokens but the last one, with `--enable-return-routed-experts`: an `.npy` file in base64 of the
    /// shape (tokens, layers, experts of a token).
    pub routed_experts: Option<String>,
    /// With `return_sampling_mask`: for each token the ids that it was drawn from, itself among them, ascending.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Vec<TokenId>>>)]
    pub sampling_mask: Option<SamplingMask>,
    /// Which weights sampled which tokens, with `return_weight_versions`.
    pub weight_versions: Option<Vec<WeightVersionSpan>>,
    /// The prompt, with `return_prompt_token_ids`; in a batch also with `return_token_ids`, where it was cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<TokenId>>,
    /// With `return_meta_info`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_info: Option<Box<SglangMetaInfo>>,
    /// The names of calls that the model made after the first one and that are left out, where the request wants one only;
    /// absent where none are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub dropped_tool_calls: Vec<String>,
}

/// What the model wrote. Sent back as it is, it continues the conversation from exactly its ids.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AnswerMessage {
    pub role: String,
    /// Null where the message only makes calls.
    pub content: Option<String>,
    pub refusal: Option<u8>,
    pub annotations: Option<u8>,
    pub audio: Option<u8>,
    pub function_call: Option<u8>,
    /// Absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<AnswerToolCall>,
    pub reasoning: Option<String>,
    #[serde(flatten)]
    #[schema(value_type = TokensWhereAsked)]
    pub tokens: Option<AnswerTokens>,
}

/// How the document describes the ids of a message, which are all there or none of them.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a schema that no macro writes")]
struct TokensWhereAsked {
    /// The prompt. With ids asked for.
    #[schema(required = false)]
    prompt_token_ids: Vec<TokenId>,
    /// What was sampled.
    #[schema(required = false)]
    generation_token_ids: Vec<TokenId>,
    /// The log-prob of each sampled token.
    #[schema(required = false)]
    generation_log_probs: Vec<f32>,
}

/// A call that the model made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AnswerToolCall {
    /// What the tool's message answers to.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub function: CalledFunction,
}

/// The function of a call.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CalledFunction {
    pub name: String,
    /// JSON text.
    pub arguments: String,
}

impl From<ToolCall> for AnswerToolCall {
    fn from(call: ToolCall) -> Self {
        let function = CalledFunction { name: call.name, arguments: call.arguments };
        Self { id: call.id, kind: "function", function }
    }
}

/// The ids of a message, with `return_token_ids`, or with `logprobs` and `return_tokens_as_token_ids`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AnswerTokens {
    /// What the model saw.
    pub prompt_token_ids: Vec<TokenId>,
    /// What it sampled, the stop token included.
    pub generation_token_ids: Vec<TokenId>,
    /// One log-prob for each sampled token, where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation_log_probs: Option<Vec<f32>>,
    /// The experts of all tokens, with `--enable-return-routed-experts`, as NeMo-RL has them on messages:
    /// `nrlre1:<dtype>:<SxLxK>:<base64>`; those of the last token, which was not computed, are 0, 1 and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed_experts: Option<String>,
}

/// The log-probs of a choice or of a piece of it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChoiceLogprobs {
    pub content: Vec<TokenLogprob>,
}

/// One sampled token.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenLogprob {
    #[serde(flatten)]
    pub token: NamedLogprob,
    pub top_logprobs: Vec<NamedLogprob>,
}

/// A token and its log-prob.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NamedLogprob {
    /// The token's text, or `token_id:N`.
    pub token: String,
    /// Natural logarithm, at least -9999.
    pub logprob: f32,
    /// The bytes of the sampled token, or of the name of an alternative.
    pub bytes: Vec<u8>,
}

/// One event of a stream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletionChunk {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<ChunkChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<StreamedUsage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_fingerprint: Option<&'static str>,
    /// In the first chunk of a choice only; null unless asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Nullable<Vec<TokenId>>,
    /// Where the images of the prompt are in it, beside its ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mm_placeholders: Option<MmPlaceholders>,
    /// In the first chunk of a choice only; null unless asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_text: Nullable<String>,
    /// Null in the chunks after the first one of a choice: there is nothing to transfer. Absent in all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_transfer_params: Nullable<u8>,
    /// In the last chunk, with usage and `--enable-per-request-metrics`; absent for several sequences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<StreamedMetrics>,
    /// In the first chunk of a choice, where ids are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_continuity: Option<TokenContinuity>,
}

/// What one event adds to a choice.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct ChunkChoice {
    pub index: usize,
    pub delta: ChunkDelta,
    pub logprobs: Option<ChoiceLogprobs>,
    pub finish_reason: Option<FinishReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Nullable<StopReason>,
    /// The tokens of this event; null unless asked for. Absent in the first chunk of a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Nullable<Vec<TokenId>>,
    /// As in a whole answer, in the last chunk of a choice; absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed_experts: Option<String>,
    /// With `return_sampling_mask`: for each token the ids that it was drawn from, itself among them, ascending.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Vec<TokenId>>>)]
    pub sampling_mask: Option<SamplingMask>,
    /// Which weights sampled which tokens, in the last chunk of a choice only; null unless asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_versions: Nullable<Vec<WeightVersionSpan>>,
    /// The names of calls that the model made after the first one and that are left out, where the request wants one only;
    /// absent where none are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub dropped_tool_calls: Vec<String>,
}

/// What one event adds to a message.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct ChunkDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Nullable<String>,
    /// What the model thought.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The name of a call, or its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ChunkToolCall>,
}

/// What a chunk says of a call: id, type and name first, then the arguments.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChunkToolCall {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Always `function`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// The call's place in the message.
    pub index: usize,
    pub function: ChunkFunction,
}

impl ChunkToolCall {
    /// A call in one piece.
    pub(crate) fn whole(index: usize, call: &ToolCall) -> Self {
        let ToolCall { id, name, arguments } = call.clone();
        let function = ChunkFunction { name: Some(name), arguments: Some(arguments) };
        Self { id: Some(id), kind: Some("function"), index, function }
    }
}

/// What a chunk says of the function of a call.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct ChunkFunction {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
}
