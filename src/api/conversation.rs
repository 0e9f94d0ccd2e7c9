//! The fields that decide a conversation's ids, as `/v1/chat/completions` and `/tokenize` share them.

use time::OffsetDateTime;

use super::{Api, error::ApiError};
use crate::{
    TokenId,
    chat::{FunctionTool, Message, TokenIds},
    continuity,
    json::{Object, Value},
    prompt::ChatPrompt,
};

/// A conversation as sent; both endpoints turn it into ids by the same rules.
pub(super) struct Conversation {
    pub(super) messages: Vec<Message>,
    pub(super) required_prefix_token_ids: Option<TokenIds>,
    pub(super) tools: Option<Vec<FunctionTool>>,
    pub(super) documents: Option<Vec<Value>>,
    pub(super) reasoning_effort: Option<String>,
    pub(super) add_generation_prompt: Option<bool>,
    pub(super) continue_final_message: Option<bool>,
    pub(super) add_special_tokens: Option<bool>,
    pub(super) chat_template: Option<Value>,
    pub(super) chat_template_kwargs: Option<Value>,
    pub(super) stop_token_ids: Vec<TokenId>,
}

impl Conversation {
    /// Checks the fields and finds the ids that are known.
    pub(super) fn into_prompt(self, api: &Api) -> Result<ChatPrompt, ApiError> {
        refuse_template(self.chat_template.as_ref())?;
        let (add_generation_prompt, continue_final_message) = self.ending()?;
        let required = self.required_prefix_token_ids.as_ref();
        let known = continuity::known_prefix(&self.messages, required, api.vocab_size())?;
        Ok(ChatPrompt {
            messages: self.messages,
            tools: self.tools,
            documents: self.documents,
            add_generation_prompt,
            continue_final_message,
            template_kwargs: template_kwargs(self.chat_template_kwargs)?,
            reasoning_effort: self.reasoning_effort,
            add_special_tokens: self.add_special_tokens.unwrap_or(false),
            stop_token_ids: self.stop_token_ids,
            known,
            now: OffsetDateTime::now_utc().to_offset(api.utc_offset),
        })
    }

    /// `(add_generation_prompt, continue_final_message)`, by vLLM's rules.
    fn ending(&self) -> Result<(bool, bool), ApiError> {
        if self.messages.is_empty() {
            let message = "Cannot apply chat template to an empty conversation. Provide at least one message.";
            return Err(ApiError::invalid_request(message));
        }
        let continues = self.continue_final_message.unwrap_or(false);
        let message = match (self.add_generation_prompt, continues) {
            (Some(true), true) => "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
            (None, true) => {
                "continue_final_message and add_generation_prompt are not compatible. Use continue_final_message when \
                 you want the model to continue the final message, and add_generation_prompt when you want to add a \
                 header that will prompt it to start a new assistant message instead."
            }
            (add, _) => return Ok((add.unwrap_or(true), continues)),
        };
        Err(ApiError::invalid_request(message))
    }
}

/// Names that the renderer sets itself.
const RESERVED: [&str; 4] = ["messages", "tools", "tokenize", "chat_template"];

/// `chat_template_kwargs`, an object.
fn template_kwargs(kwargs: Option<Value>) -> Result<Object, ApiError> {
    let kwargs = match kwargs {
        None | Some(Value::Null) => return Ok(Object::new()),
        Some(Value::Object(kwargs)) => kwargs,
        Some(_) => return Err(ApiError::invalid("chat_template_kwargs", "`chat_template_kwargs` must be an object")),
    };
    refuse_template(kwargs.get("chat_template"))?;
    match RESERVED.iter().find(|name| kwargs.contains_key(**name)) {
        Some(name) => {
            let message = format!("`chat_template_kwargs` cannot set `{name}`");
            Err(ApiError::invalid(format!("chat_template_kwargs.{name}"), message))
        }
        None => Ok(kwargs),
    }
}

/// Templates come from the operator, not from requests.
fn refuse_template(template: Option<&Value>) -> Result<(), ApiError> {
    if template.is_none_or(Value::is_null) {
        return Ok(());
    }
    let message = "Chat template is passed with request, but --trust-request-chat-template is not set. Refused request \
                   with untrusted chat template.";
    Err(ApiError::invalid_request(message))
}
