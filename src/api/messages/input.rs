//! From Anthropic's messages to those of a chat, by vLLM 0.32's rules (`entrypoints/anthropic/serving.py`), so that a
//! conversation has the same ids in both dialects.
//!
//! Deliberate deviations: blocks in messages of a role that cannot have them are refused where vLLM drops them, and so are
//! images and references to tools.

use super::{tool_input::arguments_of, types::InputMessage};
use crate::{
    api::error::ApiError,
    chat::{Content, ContentPart, Message, ToolCall},
    json::{Object, Value},
    prompt::without_billing_header,
};

/// The messages of a chat. Where the template wants its system message first, `merges_system` puts all of them there.
pub(super) fn chat_messages(
    system: Option<&Value>,
    messages: Vec<InputMessage>,
    merges_system: bool,
) -> Result<Vec<Message>, ApiError> {
    let mut chat = Vec::with_capacity(messages.len() + 1);
    let mut system_text = system.map(system_prompt).unwrap_or_default();
    if merges_system {
        let inline = messages.iter().filter(|message| message.role == "system");
        system_text.extend(inline.map(|message| system_prompt(&message.content)));
    }
    if !system_text.is_empty() {
        chat.push(Message::text("system", system_text));
    }
    for (index, message) in messages.into_iter().enumerate() {
        match message.role.as_str() {
            "system" if merges_system => {}
            "system" => {
                let text = system_prompt(&message.content);
                chat.extend((!text.is_empty()).then(|| Message::text("system", text)));
            }
            _ => Turn { index, is_user: message.role != "assistant" }.convert(message, &mut chat)?,
        }
    }
    Ok(chat)
}

/// Whether a system message stands among the others.
pub(super) fn has_inline_system(system: Option<&Value>, messages: &[InputMessage]) -> bool {
    let first = usize::from(system.is_none_or(Value::is_null));
    messages.iter().skip(first).any(|message| message.role == "system")
}

/// The texts of a system prompt, one behind the other, without the header that clients put there in every request.
fn system_prompt(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter(|block| kind(block) == "text").filter_map(|block| string(block, "text"));
            texts.filter(|text| without_billing_header(text) == Some(text)).collect()
        }
        _ => String::new(),
    }
}

fn kind(block: &Value) -> &str {
    string(block, "type").unwrap_or_default()
}

fn string<'a>(block: &'a Value, key: &str) -> Option<&'a str> {
    block.get(key).and_then(Value::as_str)
}

/// The place of a message.
#[derive(Clone, Copy)]
struct Turn {
    index: usize,
    is_user: bool,
}

/// What the blocks of a message say.
#[derive(Default)]
struct Said {
    texts: Vec<String>,
    reasoning: Option<String>,
    calls: Vec<ToolCall>,
}

impl Turn {
    fn convert(self, mut message: InputMessage, chat: &mut Vec<Message>) -> Result<(), ApiError> {
        let role = if self.is_user { "user" } else { "assistant" };
        let tokens = message.take_tokens();
        let said = match message.content {
            Value::String(text) => {
                chat.push(Message { tokens, ..Message::text(role, text) });
                return Ok(());
            }
            Value::Array(blocks) => self.read(blocks, chat)?,
            _ => Said::default(),
        };
        let Said { mut texts, reasoning, calls } = said;
        // Results have become messages of their own.
        if self.is_user && texts.is_empty() {
            return Ok(());
        }
        let content = match texts.len() {
            0 => Content::Empty,
            1 => Content::Text(texts.remove(0)),
            _ => Content::Parts(texts.into_iter().map(text_part).collect()),
        };
        let tool_calls = (!calls.is_empty()).then_some(calls);
        chat.push(Message { content, tool_calls, reasoning, tokens, ..Message::text(role, "") });
        Ok(())
    }

    /// Reads the blocks; results go to `chat` as they are, in front of what the message says besides.
    fn read(self, blocks: Vec<Value>, chat: &mut Vec<Message>) -> Result<Said, ApiError> {
        let mut said = Said::default();
        for (place, block) in blocks.into_iter().enumerate() {
            let text = |key: &str| string(&block, key).filter(|text| !text.is_empty()).map(str::to_owned);
            match kind(&block) {
                "text" => said.texts.extend(text("text")),
                "redacted_thinking" if !self.is_user => {}
                "thinking" if !self.is_user => {
                    if let Some(thinking) = string(&block, "thinking") {
                        said.reasoning.get_or_insert_default().push_str(thinking);
                    }
                }
                "tool_use" if !self.is_user => said.calls.push(call(&block)),
                "tool_result" if self.is_user => {
                    let content = self.result(place, block.get("content"))?;
                    let id = text("tool_use_id").unwrap_or_default();
                    chat.push(Message { tool_call_id: Some(id), ..Message::text("tool", content) });
                }
                other => return Err(self.refuse(place, other)),
            }
        }
        Ok(said)
    }

    /// The text of a result.
    fn result(self, place: usize, content: Option<&Value>) -> Result<String, ApiError> {
        match content {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Array(items)) => {
                if let Some(item) = items.iter().find(|item| kind(item) != "text") {
                    return Err(self.refuse(place, kind(item)));
                }
                let texts = items.iter().map(|item| string(item, "text").unwrap_or_default());
                Ok(texts.collect::<Vec<_>>().join("\n"))
            }
            _ => Ok(String::new()),
        }
    }

    fn refuse(self, place: usize, kind: &str) -> ApiError {
        let param = format!("messages.{}.content.{place}", self.index);
        let role = if self.is_user { "user" } else { "assistant" };
        let message =
            format!("{param}: a block of type {kind:?} is not served here, in a message of the role {role:?}");
        ApiError::invalid(param, message)
    }
}

fn text_part(text: String) -> ContentPart {
    let fields = [("type", Value::from("text")), ("text", Value::String(text))];
    let fields = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    ContentPart::Object { kind: "text".to_owned(), fields }
}

fn call(block: &Value) -> ToolCall {
    ToolCall {
        id: string(block, "id").unwrap_or_default().to_owned(),
        name: string(block, "name").unwrap_or_default().to_owned(),
        arguments: Some(arguments_of(block.get("input"))),
        function_extras: Object::new(),
        extras: Object::new(),
    }
}
