//! From items to the messages of a chat: the model's items that follow each other are one message.
//!
//! Ids stand for the items up to the one that carries them (NeMo Gym puts them on the last item of an answer), and so end
//! the message; what the model's name says behind them is a message of its own, since no id of theirs says it.
//! Refuses items that would have to be dropped to be understood.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    api::error::ApiError,
    chat::{Content, ContentPart, Message, Role, TokenBundle, TokenIds, ToolCall},
    json::{Object, Value},
};

/// The field of a custom tool's only argument.
pub(super) const CUSTOM_INPUT: &str = "input";

/// An item as sent, whatever its type. Log-probs travel beside the ids and are never needed.
#[derive(Deserialize)]
struct WireItem {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    content: Option<Value>,
    summary: Option<Value>,
    name: Option<String>,
    call_id: Option<String>,
    tool_call_id: Option<String>,
    arguments: Option<String>,
    input: Option<String>,
    output: Option<Value>,
    reasoning: Option<String>,
    reasoning_content: Option<String>,
    tool_calls: Option<Vec<ToolCall>>,
    prompt_token_ids: Option<TokenIds>,
    generation_token_ids: Option<TokenIds>,
}

/// Items become messages one by one.
#[derive(Default)]
pub(super) struct Fold {
    messages: Vec<Message>,
    /// The message that the model's next item belongs to.
    open: Option<Message>,
    /// Ids on items are not looked at.
    forgets_ids: bool,
}

/// The items of `input`; a text is what a user says.
pub(super) fn items(input: &RawValue) -> Result<Vec<Box<RawValue>>, ApiError> {
    let text = input.get().trim_start();
    if text.starts_with('[') {
        return serde_json::from_str(text).map_err(ApiError::internal);
    }
    if !text.starts_with('"') {
        let message = "1 validation error:\n  body.input: Input should be a string or a list of items";
        return Err(ApiError::malformed(Some("body.input".to_owned()), message));
    }
    let item = format!(r#"{{"type":"message","role":"user","content":{text}}}"#);
    Ok(vec![RawValue::from_string(item).map_err(ApiError::internal)?])
}

impl Fold {
    /// What is said first, ahead of all items.
    pub(super) fn instructed(instructions: Option<&str>) -> Self {
        let messages = instructions.map(|text| Message::text("system", text)).into_iter().collect();
        Self { messages, ..Self::default() }
    }

    /// Adds items; with `forgets_ids` those that they carry are not looked at.
    pub(super) fn extend(&mut self, items: &[Box<RawValue>], forgets_ids: bool) -> Result<(), ApiError> {
        self.forgets_ids = forgets_ids;
        for (index, item) in items.iter().enumerate() {
            let wire = serde_json::from_str(item.get()).map_err(|error| {
                let reason = error.to_string();
                let reason = reason.split(" at line ").next().unwrap_or_default();
                ApiError::malformed(
                    Some(format!("body.input.{index}")),
                    format!("1 validation error:\n  body.input.{index}: {reason}"),
                )
            })?;
            self.push(wire, &Place(index))?;
        }
        Ok(())
    }

    /// The messages.
    pub(super) fn into_messages(mut self) -> Vec<Message> {
        self.close();
        self.messages
    }

    fn close(&mut self) {
        self.messages.extend(self.open.take());
    }

    /// Ends a message that has its ids, unless the next item has the same.
    fn close_answered(&mut self, tokens: &TokenBundle) {
        let is_other = |open: &Message| open.tokens.is_some() && open.tokens != *tokens;
        if self.open.as_ref().is_some_and(is_other) {
            self.close();
        }
    }

    /// The message that the model is in the middle of.
    fn open(&mut self) -> &mut Message {
        self.open.get_or_insert_with(|| Message { content: Content::Empty, ..Message::text("assistant", "") })
    }

    fn push(&mut self, mut item: WireItem, place: &Place) -> Result<(), ApiError> {
        let kind = item.kind.take();
        let tokens = TokenBundle {
            prompt_token_ids: item.prompt_token_ids.take(),
            generation_token_ids: item.generation_token_ids.take(),
        };
        self.close_answered(&tokens);
        match kind.as_deref() {
            None | Some("message") => {
                let role = place.needs("role", item.role.take())?;
                if role != "assistant" {
                    return self.others(role, item, tokens, place);
                }
                self.said(item, place)?;
            }
            Some("reasoning") => self.thought(&thoughts(&item)),
            Some(kind @ ("function_call" | "custom_tool_call")) => {
                let arguments = if kind == "function_call" {
                    place.needs("arguments", item.arguments)?
                } else {
                    custom_arguments(place.needs("input", item.input)?)
                };
                let call = ToolCall {
                    id: place.needs("call_id", item.call_id)?,
                    name: place.needs("name", item.name)?,
                    arguments: Some(arguments),
                    function_extras: Object::new(),
                    extras: Object::new(),
                };
                self.open().tool_calls.get_or_insert_default().push(call);
            }
            Some("function_call_output" | "custom_tool_call_output") => {
                let role = "tool".to_owned();
                let call_id = place.needs("call_id", item.call_id.take())?;
                let output = place.needs("output", item.output.take())?;
                let item = WireItem { content: Some(output), tool_call_id: Some(call_id), ..item };
                return self.others(role, item, TokenBundle::default(), place);
            }
            Some(kind) => return Err(place.wrong(format!("items of type {kind:?} are not supported"))),
        }
        if tokens.is_some() && !self.forgets_ids {
            self.open().tokens = tokens;
        }
        Ok(())
    }

    /// A message of somebody who is not the model.
    fn others(&mut self, role: String, item: WireItem, tokens: TokenBundle, place: &Place) -> Result<(), ApiError> {
        self.close();
        let content = match item.content {
            None | Some(Value::Null) => Content::Empty,
            Some(Value::String(text)) => Content::Text(text),
            Some(Value::Array(parts)) => {
                let text = |part| Ok(text_part(part_text(part, place)?));
                Content::Parts(parts.iter().map(text).collect::<Result<_, ApiError>>()?)
            }
            Some(_) => return Err(place.wrong("the content of an item is a string or a list of parts")),
        };
        let message = Message {
            role: Role::new(role),
            content,
            name: item.name,
            tool_call_id: item.tool_call_id,
            tokens,
            ..Message::text("", "")
        };
        self.messages.push(message);
        Ok(())
    }

    /// What the model said, and what a chat's message says besides.
    fn said(&mut self, item: WireItem, place: &Place) -> Result<(), ApiError> {
        let text = match item.content {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text),
            Some(Value::Array(parts)) => {
                Some(parts.iter().map(|part| part_text(part, place)).collect::<Result<Vec<_>, _>>()?.concat())
            }
            Some(_) => return Err(place.wrong("the content of an item is a string or a list of parts")),
        };
        self.thought(item.reasoning.or(item.reasoning_content).as_deref().unwrap_or_default());
        let message = self.open();
        if let Some(text) = text {
            match &mut message.content {
                Content::Text(said) => said.push_str(&text),
                content => *content = Content::Text(text),
            }
        }
        if let Some(calls) = item.tool_calls {
            message.tool_calls.get_or_insert_default().extend(calls);
        }
        Ok(())
    }

    fn thought(&mut self, text: &str) {
        let message = self.open();
        if !text.is_empty() {
            message.reasoning.get_or_insert_default().push_str(text);
        }
    }
}

/// Where an item stands.
struct Place(usize);

impl Place {
    fn wrong(&self, message: impl Into<String>) -> ApiError {
        ApiError::invalid(format!("input[{}]", self.0), message)
    }

    fn needs<T>(&self, field: &str, value: Option<T>) -> Result<T, ApiError> {
        value.ok_or_else(|| self.wrong(format!("`input[{}].{field}` is missing", self.0)))
    }
}

/// What a part says; there are no others than texts.
fn part_text(part: &Value, place: &Place) -> Result<String, ApiError> {
    if let Some(text) = part.as_str() {
        return Ok(text.to_owned());
    }
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    let field = match kind {
        "input_text" | "output_text" | "text" => "text",
        "refusal" => "refusal",
        _ => return Err(place.wrong(format!("content parts of type {kind:?} are not supported"))),
    };
    place.needs(field, part.get(field).and_then(Value::as_str).map(str::to_owned))
}

fn text_part(text: String) -> ContentPart {
    let fields = [("type", "text".to_owned()), ("text", text)];
    let fields = fields.into_iter().map(|(key, text)| (key.to_owned(), Value::String(text))).collect();
    ContentPart::Object { kind: "text".to_owned(), fields }
}

/// What was thought; a summary counts where there is nothing else.
fn thoughts(item: &WireItem) -> String {
    let texts = |parts: &Option<Value>| {
        let parts = parts.as_ref().and_then(Value::as_array).unwrap_or_default();
        parts.iter().filter_map(|part| part.get("text")?.as_str()).collect::<String>()
    };
    let content = texts(&item.content);
    if content.is_empty() { texts(&item.summary) } else { content }
}

/// A custom tool is a function of one text.
fn custom_arguments(input: String) -> String {
    Value::Object(Object::from_iter([(CUSTOM_INPUT.to_owned(), Value::String(input))])).to_json_string()
}
