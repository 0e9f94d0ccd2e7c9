//! The wire shapes of answers: a message, and the events of a stream, which add up to that message.

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    TokenId,
    json::Value,
    wire::answer::{
        output::Nullable, token_continuity::TokenContinuity, tool_notices::ToolNotices,
        weight_versions::WeightVersionSpan,
    },
};

/// What the model wrote. Sent back as it is, it continues the conversation from exactly its ids.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct AnswerMessage {
    pub id: String,
    /// Always `message`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Always `assistant`.
    pub role: &'static str,
    pub content: Vec<Block>,
    pub model: String,
    /// Null at the start of a stream; absent where the server ended the generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Nullable<StopReason>,
    /// The text that ended it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_sequence: Nullable<String>,
    pub usage: Usage,
    /// What the model saw, with `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<TokenId>>,
    #[serde(flatten)]
    pub sampled: Option<SampledIds>,
    /// Which weights sampled which tokens, with `return_weight_versions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_versions: Option<Vec<WeightVersionSpan>>,
    /// The names of calls that the model made after the first one and that are left out, where the request wants one only;
    /// absent where none are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub dropped_tool_calls: Vec<String>,
    /// What became of the ids of earlier turns, where ids are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_continuity: Option<TokenContinuity>,
    /// What of the tools was not done as the request asks; absent where all was.
    #[serde(flatten)]
    pub notices: ToolNotices,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Block {
    /// What the model says.
    Text { text: String },
    /// What it thinks.
    Thinking {
        thinking: String,
        /// Says nothing: clients want one.
        #[serde(skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// A call that it makes.
    ToolUse {
        id: String,
        name: String,
        #[schema(value_type = Object)]
        input: Value,
    },
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StopReason {
    /// It ended its turn.
    EndTurn,
    /// The tokens to generate ran out.
    MaxTokens,
    /// One of `stop_sequences` was completed.
    StopSequence,
    /// The message makes calls.
    ToolUse,
}

/// Tokens that a request used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "the names are the wire's")]
pub(crate) struct Usage {
    /// Tokens of the prompt, without `cache_read_input_tokens`.
    pub input_tokens: usize,
    /// Sampled tokens.
    pub output_tokens: usize,
    /// Tokens of the prompt that were not computed again, because a cache had them. With
    /// `--enable-prompt-tokens-details`, where the engine says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read_input_tokens: Option<usize>,
}

/// The ids that were sampled, with `return_token_ids`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
pub(crate) struct SampledIds {
    /// What was sampled, the stop token included.
    pub generation_token_ids: Vec<TokenId>,
    /// One log-prob for each sampled token.
    pub generation_log_probs: Vec<f32>,
    /// The experts of all tokens, with `--enable-return-routed-experts`, as NeMo-RL has them on messages:
    /// `nrlre1:<dtype>:<SxLxK>:<base64>`; those of the last token, which was not computed, are 0, 1 and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed_experts: Option<String>,
}

/// One event of a stream.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum MessageEvent {
    /// The message, before anything is in it.
    MessageStart { message: Box<AnswerMessage> },
    /// A block begins.
    ContentBlockStart { index: usize, content_block: Block },
    /// It goes on.
    ContentBlockDelta { index: usize, delta: BlockDelta },
    /// It ends.
    ContentBlockStop { index: usize },
    /// How the message ended.
    MessageDelta { delta: MessageDelta, usage: Usage },
    /// There is nothing more.
    MessageStop,
}

impl MessageEvent {
    /// Returns the name of the event, which the stream sends before its data.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
        }
    }
}

/// What is added to a block.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "the names are the wire's")]
pub(crate) enum BlockDelta {
    TextDelta { text: String },
    ThinkingDelta { thinking: String },
    SignatureDelta { signature: String },
    InputJsonDelta { partial_json: String },
}

/// How a message ended.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct MessageDelta {
    /// Null where the server ended it.
    pub stop_reason: Option<StopReason>,
    /// The text that ended it; null where none did.
    pub stop_sequence: Option<String>,
    #[serde(flatten)]
    pub sampled: Option<SampledIds>,
    /// Which weights sampled which tokens, with `return_weight_versions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_versions: Option<Vec<WeightVersionSpan>>,
    /// The names of calls that the model made after the first one and that are left out, where the request wants one only;
    /// absent where none are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub dropped_tool_calls: Vec<String>,
}

/// How long a prompt is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenCount {
    /// Tokens of the prompt.
    pub input_tokens: usize,
    pub context_management: CountedContext,
}

/// What was left out of a prompt to make it shorter: nothing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CountedContext {
    /// Tokens of the whole conversation.
    pub original_input_tokens: usize,
}
