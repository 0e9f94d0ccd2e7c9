//! Turns Anthropic's messages into those of a chat, by vLLM 0.32's rules (`entrypoints/anthropic/serving.py`), so that
//! a conversation has the same ids in both dialects.
//!
//! It deviates deliberately in what stands between two texts of the system: a blank line, where vLLM lets one word run
//! into the next. A reference to a tool, of which vLLM makes a second result, is the tool's definition in the first one.
//! It also deviates where vLLM drops something, and refuses it: blocks in messages of a role that cannot have them,
//! images for a model that sees none, blocks that lack what their kind needs, and messages that say nothing.

use super::references::{LIST, definition, is_reference, tool_name};
use crate::{
    chat::{Content, ContentPart, FunctionTool, Message, ToolCall},
    json::{Object, Value},
    prompt::without_billing_header,
    wire::{
        error::ApiError,
        messages::{tool_input::arguments_of, types::InputMessage},
    },
};

/// What the blocks of messages may be.
#[derive(Clone, Copy)]
pub(super) struct Readable<'a> {
    /// The tools that results of tools may refer to.
    pub(super) tools: &'a [FunctionTool],
    /// Whether the model sees images.
    pub(super) images: bool,
}

/// Returns the messages of a chat.
pub(super) fn chat_messages(
    system: Option<&Value>,
    messages: Vec<InputMessage>,
    readable: Readable<'_>,
) -> Result<Vec<Message>, ApiError> {
    refuse_silent(&messages)?;
    let mut chat = Vec::with_capacity(messages.len() + 1);
    let leading = system.map_or_else(|| Ok(String::new()), |content| system_text("system", content))?;
    if !leading.is_empty() {
        chat.push(Message::text("system", leading));
    }
    for (index, message) in messages.into_iter().enumerate() {
        match message.role.as_str() {
            "system" => {
                let text = inline_system_text(index, &message.content)?;
                chat.extend((!text.is_empty()).then(|| Message::text("system", text)));
            }
            _ => MessagePlace { index, is_user: message.role != "assistant", readable }.convert(message, &mut chat)?,
        }
    }
    Ok(chat)
}

/// Refuses messages that would be left out because they say nothing, in Anthropic's words. An assistant's message
/// without a text is still a turn.
fn refuse_silent(messages: &[InputMessage]) -> Result<(), ApiError> {
    let is_empty_text = |block: &Value| kind(block) == "text" && string(block, "text") == Some("");
    let is_silent = |index: usize, message: &InputMessage| match (message.role.as_str(), &message.content) {
        ("assistant", Value::Array(blocks)) => blocks.is_empty() && index + 1 < messages.len(),
        ("user" | "system", Value::String(text)) => text.is_empty(),
        (_, Value::Array(blocks)) => blocks.iter().all(is_empty_text),
        _ => false,
    };
    match messages.iter().enumerate().find(|(index, message)| is_silent(*index, message)) {
        None => Ok(()),
        Some((index, _)) => Err(invalid(
            format!("messages.{index}"),
            "all messages must have non-empty content except for the optional final assistant message",
        )),
    }
}

/// Joins the texts of a system prompt, without the header that clients put there in every request.
fn system_text(place: &str, content: &Value) -> Result<String, ApiError> {
    match content {
        // The header of such a text is left out where the text is rendered.
        Value::String(text) => Ok(text.clone()),
        Value::Array(blocks) => {
            let texts = blocks.iter().enumerate().map(|(index, block)| {
                let text = text_of(block, &format!("{place}.{index}"), "system")?;
                Ok(without_billing_header(text).unwrap_or_default())
            });
            texts.collect::<Result<Vec<&str>, _>>().map(|texts| joined(&texts))
        }
        _ => Ok(String::new()),
    }
}

/// Joins texts with a blank line between two of them, as the prompt does with system messages that it gathers.
fn joined(texts: &[&str]) -> String {
    texts.iter().copied().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// Joins the texts of a system message; the text is empty if the message has nothing but the header.
fn inline_system_text(index: usize, content: &Value) -> Result<String, ApiError> {
    let text = system_text(&format!("messages.{index}.content"), content)?;
    Ok(without_billing_header(&text).unwrap_or_default().to_owned())
}

/// Returns the text of a block in a place where only text blocks are allowed.
fn text_of<'a>(block: &'a Value, place: &str, role: &str) -> Result<&'a str, ApiError> {
    match kind(block) {
        "text" => needed(block, place, "text"),
        other => Err(unserved(place, other, role)),
    }
}

/// Returns a field that a block of its kind must have.
fn needed<'a>(block: &'a Value, place: &str, key: &str) -> Result<&'a str, ApiError> {
    let message = || format!("a block of type {:?} needs this to be a string", kind(block));
    string(block, key).ok_or_else(|| invalid(format!("{place}.{key}"), message()))
}

fn unserved(place: &str, kind: &str, role: &str) -> ApiError {
    let advice = match kind {
        "tool_reference" => "; a reference to a tool belongs into the `content` of a `tool_result`",
        "tool_addition" | "tool_removal" => "; have the client change its tools in `tools`",
        _ => "",
    };
    let message = format!("a block of type {kind:?} is not served here, in a message of the role {role:?}{advice}");
    invalid(place.to_owned(), message)
}

/// Makes the error of a field. The message names the field too, because Anthropic's errors have no other place for it.
fn invalid(place: String, message: impl AsRef<str>) -> ApiError {
    let message = format!("{place}: {}", message.as_ref());
    ApiError::invalid(place, message)
}

fn kind(block: &Value) -> &str {
    string(block, "type").unwrap_or_default()
}

fn string<'a>(block: &'a Value, key: &str) -> Option<&'a str> {
    block.get(key).and_then(Value::as_str)
}

/// The index of a message, whether a user sent it, and what its blocks may be.
#[derive(Clone, Copy)]
struct MessagePlace<'a> {
    index: usize,
    is_user: bool,
    readable: Readable<'a>,
}

/// The content of a message's blocks.
#[derive(Default)]
struct BlockContent {
    parts: Vec<ContentPart>,
    reasoning: Option<String>,
    calls: Vec<ToolCall>,
}

impl<'a> MessagePlace<'a> {
    fn convert(self, mut message: InputMessage, chat: &mut Vec<Message>) -> Result<(), ApiError> {
        let role = self.role();
        if let Some((field, block)) = message.field_of_a_chat().filter(|_| !self.is_user) {
            let place = format!("messages.{}.{field}", self.index);
            return Err(invalid(place, format!("this is a field of chats: send a block of type {block:?}")));
        }
        let tokens = message.take_tokens();
        let said = match message.content {
            Value::String(text) => {
                chat.push(Message { tokens, ..Message::text(role, text) });
                return Ok(());
            }
            Value::Array(blocks) => self.read(blocks, chat)?,
            _ => BlockContent::default(),
        };
        let BlockContent { mut parts, reasoning, calls } = said;
        // A message that only has results of tools is done: they have become messages of their own.
        if self.is_user && parts.is_empty() {
            return Ok(());
        }
        let content = match (parts.pop(), parts.is_empty()) {
            (None, _) => Content::Empty,
            (Some(ContentPart::Text(text)), true) => Content::Text(text),
            (Some(last), _) => {
                parts.push(last);
                Content::Parts(parts.into_iter().map(with_type).collect())
            }
        };
        let tool_calls = (!calls.is_empty()).then_some(calls);
        chat.push(Message { content, tool_calls, reasoning, tokens, ..Message::text(role, "") });
        Ok(())
    }

    /// Reads the blocks; results of tools go to `chat` right away, before the rest of the message.
    fn read(self, blocks: Vec<Value>, chat: &mut Vec<Message>) -> Result<BlockContent, ApiError> {
        let mut said = BlockContent::default();
        for (number, block) in blocks.into_iter().enumerate() {
            let place = format!("messages.{}.content.{number}", self.index);
            match kind(&block) {
                "text" => {
                    let text = needed(&block, &place, "text")?;
                    said.parts.extend((!text.is_empty()).then(|| ContentPart::Text(text.to_owned())));
                }
                // The data of this block is encrypted, so no model here can have written it, or read it.
                "redacted_thinking" if !self.is_user => {}
                "thinking" if !self.is_user => {
                    said.reasoning.get_or_insert_default().push_str(needed(&block, &place, "thinking")?);
                }
                "tool_use" if !self.is_user => said.calls.push(call(&block, &place)?),
                "image" if self.is_user && self.readable.images => said.parts.push(image(&block, &place)?),
                "tool_result" if self.is_user => chat.extend(self.result(&block, &place)?),
                other => return Err(unserved(&place, other, self.role())),
            }
        }
        Ok(said)
    }

    /// Turns the result of a tool into the message that it is in a chat, and its images into one of the user after it, as
    /// vLLM does.
    fn result(self, block: &Value, place: &str) -> Result<impl Iterator<Item = Message>, ApiError> {
        let id = needed(block, place, "tool_use_id")?.to_owned();
        let place = format!("{place}.content");
        let mut images = Vec::new();
        let text = match block.get("content") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(items)) => self.result_text(items, &place, &mut images)?,
            _ => String::new(),
        };
        // Templates cannot show that the result is an error; only its text can.
        if text.is_empty() && images.is_empty() && block.get("is_error").and_then(Value::as_bool) == Some(true) {
            return Err(invalid(place, "content cannot be empty if `is_error` is true"));
        }
        let shown =
            (!images.is_empty()).then(|| Message { content: Content::Parts(images), ..Message::text("user", "") });
        let result = Message { tool_call_id: Some(id), ..Message::text("tool", text) };
        Ok(std::iter::once(result).chain(shown))
    }

    /// Joins what the blocks of a result say, without its images. Tools that blocks beside each other refer to are in one
    /// list.
    fn result_text(self, items: &[Value], place: &str, images: &mut Vec<ContentPart>) -> Result<String, ApiError> {
        let [opening, closing] = LIST;
        let mut lines = Vec::with_capacity(items.len());
        let mut is_in_list = false;
        for (number, item) in items.iter().enumerate() {
            let place = format!("{place}.{number}");
            if kind(item) == "image" && self.readable.images {
                images.push(image(item, &place)?);
                continue;
            }
            let refers = is_reference(item);
            if refers != is_in_list {
                lines.push((if refers { opening } else { closing }).to_owned());
                is_in_list = refers;
            }
            lines.push(if refers {
                definition(self.referred(item, &place)?)
            } else {
                text_of(item, &place, self.role())?.to_owned()
            });
        }
        lines.extend(is_in_list.then(|| closing.to_owned()));
        Ok(lines.join("\n"))
    }

    /// Returns the tool that a block refers to.
    fn referred(self, reference: &Value, place: &str) -> Result<&'a FunctionTool, ApiError> {
        let place = format!("{place}.tool_name");
        let Some(name) = tool_name(reference) else {
            return Err(invalid(place, "a block of type \"tool_reference\" needs this to be the name of a tool"));
        };
        self.readable.tools.iter().find(|tool| tool.name == name).ok_or_else(|| {
            invalid(place, format!("no tool in `tools` that the model can be shown has the name {name:?}"))
        })
    }

    fn role(self) -> &'static str {
        if self.is_user { "user" } else { "assistant" }
    }
}

/// A part of several, which says its type.
fn with_type(part: ContentPart) -> ContentPart {
    match part {
        ContentPart::Text(text) => object_part("text", [("text", Value::String(text))]),
        other => other,
    }
}

fn object_part(kind: &str, fields: [(&str, Value); 1]) -> ContentPart {
    let fields = [("type", Value::from(kind))].into_iter().chain(fields);
    let fields = fields.map(|(key, value)| (key.to_owned(), value)).collect();
    ContentPart::Object { kind: kind.to_owned(), fields }
}

/// Returns an image as a part of a chat, with the URL of its data or the one that it has.
fn image(block: &Value, place: &str) -> Result<ContentPart, ApiError> {
    let place = format!("{place}.source");
    let source = block.get("source").unwrap_or(&Value::Null);
    let url = match kind(source) {
        "base64" => {
            let data = needed(source, &place, "data")?;
            format!("data:{};base64,{data}", string(source, "media_type").unwrap_or("image/jpeg"))
        }
        "url" => needed(source, &place, "url")?.to_owned(),
        other => return Err(invalid(place, format!("an image of the type {other:?} is not served here"))),
    };
    Ok(object_part("image_url", [("image_url", Value::String(url))]))
}

fn call(block: &Value, place: &str) -> Result<ToolCall, ApiError> {
    Ok(ToolCall {
        id: needed(block, place, "id")?.to_owned(),
        name: needed(block, place, "name")?.to_owned(),
        arguments: Some(arguments_of(block.get("input"))),
        function_extras: Object::default(),
        extras: Object::default(),
    })
}
