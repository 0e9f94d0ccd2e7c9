//! The wire shapes of `POST /tokenize` and `/detokenize`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rules;
use crate::{
    TokenId,
    chat::{FunctionTool, Message, TokenIds},
    json::Value,
    wire::{
        answer::{mm_placeholders::MmPlaceholders, token_continuity::TokenContinuity},
        body::{Body, Rules},
    },
};

/// A conversation (`messages`) or a text (`prompt`); with both, the conversation counts. Unknown fields are ignored,
/// so the body of a chat request will do.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TokenizeRequest {
    /// One of the served names; absent or empty is any.
    pub model: Option<String>,
    /// A text.
    pub prompt: Option<String>,
    /// A conversation.
    pub messages: Option<Vec<Message>>,
    /// Let the tokenizer add its own special tokens: true for a text, false for a conversation.
    pub add_special_tokens: Option<bool>,
    /// Ids that the prompt must start with, whatever the messages carry.
    #[schema(value_type = Option<Vec<u32>>)]
    pub required_prefix_token_ids: Option<TokenIds>,
    /// The whole prompt: messages are not rendered.
    #[schema(value_type = Option<Vec<u32>>)]
    pub prompt_token_ids: Option<TokenIds>,
    /// `prompt_token_ids` in it is the whole prompt; everything else is ignored.
    #[schema(value_type = Option<Object>)]
    pub kv_transfer_params: Option<Value>,
    /// The client's name for the conversation; the header `X-Session-ID` wins.
    pub session_id: Option<String>,
    /// Taken for `session_id` where that is not given.
    pub prompt_cache_key: Option<String>,
    /// Report what became of the ids of earlier turns, drift included.
    pub return_token_continuity: Option<bool>,
    /// Tools that the template may show.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<FunctionTool>>,
    /// Documents that the template may show.
    #[schema(value_type = Option<Vec<Object>>)]
    pub documents: Option<Vec<Value>>,
    /// How much to think, for templates that read it.
    pub reasoning_effort: Option<String>,
    /// End with the start of an assistant message (default true).
    pub add_generation_prompt: Option<bool>,
    /// End inside the last message.
    pub continue_final_message: Option<bool>,
    /// The template to use, where the server trusts requests with it (`--trust-request-chat-template`).
    #[schema(value_type = Option<String>)]
    pub chat_template: Option<Value>,
    /// Further variables of the template.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Value>,
    /// Stop tokens of the chat request: they may close a message too.
    pub stop_token_ids: Option<Vec<TokenId>>,
    /// Continue only conversations of the same salt.
    #[schema(value_type = Option<String>)]
    pub cache_salt: Option<serde_json::Value>,
    /// Refused unless empty.
    #[schema(value_type = Option<Object>)]
    pub mm_processor_kwargs: Option<Value>,
    /// Refused unless empty.
    #[schema(value_type = Option<Object>)]
    pub media_io_kwargs: Option<Value>,
    /// Report the vocabulary's own spelling of each token.
    pub return_token_strs: Option<bool>,
}

impl Body for TokenizeRequest {
    const RULES: &'static Rules = &rules::TOKENIZE_RULES;
}

/// Ids.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenizeResponse {
    pub count: usize,
    pub max_model_len: usize,
    pub tokens: Vec<TokenId>,
    pub token_strs: Option<Vec<Option<String>>>,
    /// Where the images of a conversation are in its ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mm_placeholders: Option<MmPlaceholders>,
    /// Of a conversation that has ids or assistant messages, or on demand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_continuity: Option<TokenContinuity>,
}

/// Ids to be put into text.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct DetokenizeRequest {
    /// One of the served names; absent or empty is any.
    pub model: Option<String>,
    /// The ids.
    pub tokens: Vec<TokenId>,
}

impl Body for DetokenizeRequest {
    const RULES: &'static Rules = &rules::DETOKENIZE_RULES;
}

/// Text.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DetokenizeResponse {
    /// The text, special tokens included.
    pub prompt: String,
}
