//! Turns items into the messages of a chat: items of the model that follow each other become one message.
//!
//! Token ids cover the items up to the one that carries them (NeMo Gym puts them on the last item of an answer), and so
//! end the message. Items of the model after that become a message of their own, since those ids do not cover them; unless
//! their ids go on where these end: then an answer was cut off, and another response continued it.
//! Items that could only be understood by dropping a part are refused.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::names::name_in_group;
use crate::{
    TokenId,
    chat::{
        AssistantItem, Content, ContentPart, Message, Role, ThoughtFields, TokenBundle, TokenIds, ToolCall,
        UnreadFields,
    },
    json::{Object, Path, Value},
    records::TurnIds,
    wire::error::{ApiError, wording::Sentence},
};

/// The roles of messages, and `tool`, which vLLM does not take here.
const ROLES: [&str; 5] = ["user", "assistant", "system", "developer", "tool"];

/// The field of a custom tool's only argument.
pub(super) const CUSTOM_INPUT: &str = "input";

/// An item as it was sent, whatever its type. Log-probs may come beside the ids, and are never needed.
#[derive(Deserialize)]
struct WireItem {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    content: Option<Value>,
    summary: Option<Value>,
    name: Option<String>,
    namespace: Option<String>,
    call_id: Option<String>,
    tool_call_id: Option<String>,
    arguments: Option<String>,
    input: Option<String>,
    output: Option<Value>,
    reasoning: Option<String>,
    reasoning_content: Option<String>,
    thinking: Option<Value>,
    thinking_blocks: Option<Value>,
    reasoning_details: Option<Value>,
    function_call: Option<Value>,
    refusal: Option<Value>,
    audio: Option<Value>,
    tool_calls: Option<Vec<ToolCall>>,
    encrypted_content: Option<Value>,
    prompt_token_ids: Option<TokenIds>,
    generation_token_ids: Option<TokenIds>,
    token_ids_digest: Option<String>,
}

/// What is done with the ids that items carry.
#[derive(Debug, Clone, Copy)]
pub(super) enum Carried<'a> {
    /// They are the ids of the conversation.
    Taken,
    /// They are dropped, because the conversation has begun anew.
    Forgotten,
    /// They must start with these ids, which are those of the stored response before the items.
    After(&'a [TokenId]),
    /// They are refused, for this reason.
    Refused(&'static str),
}

/// Turns items into messages, one by one.
#[derive(Default)]
pub(super) struct ItemFold {
    messages: Vec<Message>,
    /// For each message, the index of the request's item with which it ends; `None` for a stored item.
    places: Vec<Option<usize>>,
    /// The message to which the model's next item will belong.
    open: Option<Message>,
    /// The ids with which the open message ends.
    answered: Option<TurnIds>,
    /// Those of the responses that were cut off and have begun the open message, where they are known.
    begun: Option<TokenBundle>,
    /// The index of the open message's latest item.
    place: Option<usize>,
    /// The types of items that nobody could show to the model.
    ignored: Vec<&'static str>,
}

/// Messages, and for each of them the index of the request's item with which it ends; `None` for a stored item.
pub(super) struct Folded {
    pub(super) messages: Vec<Message>,
    pub(super) places: Vec<Option<usize>>,
    /// The types of items that nobody could show to the model.
    pub(super) ignored: Vec<&'static str>,
}

/// Returns the items of `input`; a text becomes a message of the user.
pub(super) fn items(input: &RawValue) -> Result<Vec<Box<RawValue>>, ApiError> {
    let text = input.get().trim_start();
    if text.starts_with('[') {
        return serde_json::from_str(text).map_err(ApiError::internal);
    }
    if !text.starts_with('"') {
        let message = "1 validation error:\n  body.input: Input should be a string or a list of items";
        return Err(ApiError::malformed(Some(Path::from("body").then("input")), message));
    }
    let item = format!(r#"{{"type":"message","role":"user","content":{text}}}"#);
    Ok(vec![RawValue::from_string(item).map_err(ApiError::internal)?])
}

/// Whether the last item is an answer that was cut off, which is to be continued (vLLM 0.33 `responses/utils.py`,
/// `should_continue_final_message`). Content in one text is no answer there, whatever its status.
pub(super) fn is_unfinished(items: &[Box<RawValue>]) -> Result<bool, ApiError> {
    #[derive(Deserialize)]
    struct Last {
        #[serde(rename = "type")]
        kind: Option<String>,
        role: Option<String>,
        status: Option<String>,
        content: Option<Value>,
    }
    // What is no item is refused where all are read.
    let last = items.last().and_then(|last| serde_json::from_str::<Last>(last.get()).ok());
    let Some(last) = last.filter(|last| matches!(last.status.as_deref(), Some("in_progress" | "incomplete"))) else {
        return Ok(false);
    };
    match (last.kind.as_deref(), last.role.as_deref()) {
        (Some("message"), Some("assistant")) => Ok(matches!(last.content, Some(Value::Array(_)))),
        (Some("reasoning"), _) => Err(Place(items.len() - 1).wrong("a thought that was cut off cannot be continued")),
        _ => Ok(false),
    }
}

impl ItemFold {
    /// Starts with the instructions, which come before all items.
    pub(super) fn instructed(instructions: Option<&str>) -> Self {
        // As in vLLM, empty instructions are none: an empty system message would take the place of the template's own.
        let instructions = instructions.filter(|text| !text.is_empty());
        let messages: Vec<_> = instructions.map(|text| Message::text("system", text)).into_iter().collect();
        Self { places: vec![None; messages.len()], messages, ..Self::default() }
    }

    /// Adds stored items.
    pub(super) fn extend_stored(&mut self, items: &[Box<RawValue>], carried: Carried<'_>) -> Result<(), ApiError> {
        items.iter().enumerate().try_for_each(|(index, item)| self.add(item, index, carried, None))
    }

    /// Adds items of the request.
    pub(super) fn extend(&mut self, items: &[Box<RawValue>], carried: Carried<'_>) -> Result<(), ApiError> {
        items.iter().enumerate().try_for_each(|(index, item)| self.add(item, index, carried, Some(index)))
    }

    fn add(
        &mut self,
        item: &RawValue,
        index: usize,
        carried: Carried<'_>,
        place: Option<usize>,
    ) -> Result<(), ApiError> {
        let malformed = |reason: &str| {
            let place = Path::from("body").then("input").then(index);
            ApiError::malformed(Some(place), format!("1 validation error:\n  body.input.{index}: {reason}"))
        };
        // serde would accept a list as the fields in their order.
        if !item.get().trim_start().starts_with('{') {
            return Err(malformed("Input should be an object"));
        }
        let wire: WireItem = serde_json::from_str(item.get())
            .map_err(|error| malformed(error.to_string().split(" at line ").next().unwrap_or_default()))?;
        self.push(wire, carried, &Place(index), place)
    }

    /// Returns the messages.
    pub(super) fn finish(mut self) -> Folded {
        self.close();
        Folded { messages: self.messages, places: self.places, ignored: self.ignored }
    }

    fn close(&mut self) {
        (self.answered, self.begun) = (None, None);
        if let Some(message) = self.open.take() {
            self.messages.push(message);
            self.places.push(self.place);
        }
    }

    /// Ends a message that has its ids, unless the next item carries the same, or ids that go on behind them.
    fn end_unless_continued(&mut self, turn: Option<&TurnIds>) {
        let Some(answered) = &self.answered else { return };
        if turn == Some(answered) {
            return;
        }
        if turn.is_some_and(|turn| answered.is_continued_by(turn)) {
            self.begun = self.open.as_mut().map(|message| std::mem::take(&mut message.tokens));
        } else {
            self.close();
        }
    }

    /// Returns the message of the model that is not finished yet.
    fn open(&mut self) -> &mut Message {
        let silent = || Message { content: Content::Empty, items: Some(Vec::new()), ..Message::text("assistant", "") };
        self.open.get_or_insert_with(silent)
    }

    /// Notes what the model's next item says, for formats in which every item is a message of its own.
    fn note(&mut self, said: AssistantItem) {
        self.open().items.get_or_insert_default().push(said);
    }

    fn call(&mut self, call: ToolCall) {
        let calls = self.open().tool_calls.get_or_insert_default();
        calls.push(call);
        let number = calls.len() - 1;
        self.note(AssistantItem::Call(number));
    }

    fn push(
        &mut self,
        mut item: WireItem,
        carried: Carried<'_>,
        at: &Place,
        place: Option<usize>,
    ) -> Result<(), ApiError> {
        let kind = item.kind.take();
        let tokens = TokenBundle {
            prompt_token_ids: item.prompt_token_ids.take(),
            generation_token_ids: item.generation_token_ids.take(),
        };
        at.accepts(&tokens, carried)?;
        let digest = item.token_ids_digest.take();
        let turn = if tokens.is_some() { Some(TurnIds::Sent(tokens.clone())) } else { digest.map(TurnIds::Stored) };
        self.end_unless_continued(turn.as_ref());
        match kind.as_deref() {
            None | Some("message") => {
                let role = at.needs("role", item.role.take())?;
                at.accepts_message(&role, item.content.as_ref())?;
                if role != "assistant" {
                    return self.others(role, item, tokens, (at, place));
                }
                self.add_model_text(item, at)?;
            }
            Some("reasoning") => {
                let text = thoughts(&item, at)?;
                if text.is_empty() && is_encrypted(&item) {
                    self.ignored.push("reasoning");
                }
                self.think(&text, thought_of(&item));
            }
            Some(kind @ ("function_call" | "custom_tool_call")) => {
                let arguments = if kind == "function_call" {
                    at.needs("arguments", item.arguments)?
                } else {
                    custom_arguments(at.needs("input", item.input)?)
                };
                let name = at.needs("name", item.name)?;
                let call = ToolCall {
                    id: at.needs("call_id", item.call_id)?,
                    name: item.namespace.map_or_else(|| name.clone(), |group| name_in_group(&group, &name)),
                    arguments: Some(arguments),
                    function_extras: Object::default(),
                    extras: Object::default(),
                };
                self.call(call);
            }
            Some("function_call_output" | "custom_tool_call_output") => {
                let role = "tool".to_owned();
                let call_id = at.needs("call_id", item.call_id.take())?;
                let output = at.needs("output", item.output.take())?;
                if tokens.is_some() {
                    return Err(at.wrong("an output of a tool carries token ids, and no model sampled it"));
                }
                let item = WireItem { content: Some(output), tool_call_id: Some(call_id), ..item };
                return self.others(role, item, tokens, (at, place));
            }
            // Another server's search: the item says what was searched for, and nothing of what was found.
            Some("web_search_call") if tokens.is_some() => {
                return Err(at.wrong("a search of another server carries token ids, and no model here sampled it"));
            }
            Some("web_search_call") => {
                self.ignored.push("web_search_call");
                return Ok(());
            }
            Some(kind) => return Err(at.wrong(format!("items of type {kind:?} are not supported"))),
        }
        self.place = place;
        if tokens.is_some() && !matches!(carried, Carried::Forgotten) {
            let whole = self.begun.as_ref().and_then(|begun| begun.continued_by(&tokens));
            self.open().tokens = whole.unwrap_or(tokens);
        }
        self.answered = turn;
        Ok(())
    }

    /// Adds a message of anybody except the model.
    fn others(
        &mut self,
        role: String,
        item: WireItem,
        tokens: TokenBundle,
        (at, place): (&Place, Option<usize>),
    ) -> Result<(), ApiError> {
        self.close();
        let content = match item.content {
            None | Some(Value::Null) => Content::Empty,
            Some(Value::String(text)) => Content::Text(text),
            Some(Value::Array(parts)) => {
                let parts = parts.into_iter().map(|part| content_part(part, at));
                Content::Parts(parts.collect::<Result<_, ApiError>>()?)
            }
            Some(_) => return Err(at.wrong("the content of an item is a string or a list of parts")),
        };
        let message = Message {
            role: Role::new(role),
            content,
            name: item.name,
            tool_call_id: item.tool_call_id,
            reasoning: item.reasoning.or(item.reasoning_content),
            tool_calls: item.tool_calls,
            tokens,
            items: Some(Vec::new()),
            ..Message::text("", "")
        };
        self.messages.push(message);
        self.places.push(place);
        Ok(())
    }

    /// Adds text of the model, and the further fields that an assistant's message of a chat has.
    fn add_model_text(&mut self, item: WireItem, at: &Place) -> Result<(), ApiError> {
        let texts = match item.content {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(vec![text]),
            Some(Value::Array(parts)) => {
                Some(parts.iter().map(|part| part_text(part, at)).collect::<Result<Vec<_>, _>>()?)
            }
            Some(_) => return Err(at.wrong("the content of an item is a string or a list of parts")),
        };
        let unread = UnreadFields { function_call: item.function_call, refusal: item.refusal, audio: item.audio };
        let content = texts.as_ref().map_or(Content::Empty, |texts| Content::Text(texts.concat()));
        let makes_calls = item.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
        unread.refuse_lost(&content, makes_calls).map_err(|error| at.wrong(error.to_string()))?;
        let thoughts = ThoughtFields {
            reasoning: item.reasoning.map(Value::String),
            reasoning_content: item.reasoning_content.map(Value::String),
            thinking: item.thinking,
            thinking_blocks: item.thinking_blocks,
            reasoning_details: item.reasoning_details,
        };
        let thought = thoughts.read().map_err(|error| at.wrong(error.to_string()))?.unwrap_or_default();
        self.think(&thought, Some(thought.clone()));
        let message = self.open();
        if let Some(texts) = texts {
            let text = texts.concat();
            message.items.get_or_insert_default().push(AssistantItem::Text(texts));
            match &mut message.content {
                Content::Text(said) => said.push_str(&text),
                content => *content = Content::Text(text),
            }
        }
        item.tool_calls.into_iter().flatten().for_each(|call| self.call(call));
        Ok(())
    }

    /// Adds a thought; `own` is what the item itself says of it, which may be nothing but a summary.
    fn think(&mut self, text: &str, own: Option<String>) {
        if !text.is_empty() {
            self.open().reasoning.get_or_insert_default().push_str(text);
        }
        if let Some(own) = own.filter(|own| !own.is_empty()) {
            self.note(AssistantItem::Thought(own));
        }
    }
}

/// The index of an item in the request or in the stored conversation.
struct Place(usize);

impl Place {
    fn path(&self) -> Path {
        Path::from("input").then(self.0)
    }

    fn wrong(&self, message: impl Into<Sentence>) -> ApiError {
        ApiError::invalid(self.path(), message)
    }

    /// Refuses messages of roles that templates may not show, and messages without content, which would be empty turns.
    fn accepts_message(&self, role: &str, content: Option<&Value>) -> Result<(), ApiError> {
        if !ROLES.contains(&role) {
            return Err(self.wrong(format!("messages of the role {role:?} are not supported")));
        }
        if role != "assistant" && content.is_none_or(Value::is_null) {
            return Err(self.wrong(format!("a message of the role {role:?} needs a `content`")));
        }
        Ok(())
    }

    /// Refuses ids that the item may not carry.
    fn accepts(&self, tokens: &TokenBundle, carried: Carried<'_>) -> Result<(), ApiError> {
        let field = |name: &'static str, message: &str| {
            Err(ApiError::invalid(self.path().then(name), format!("`{}` {message}", self.path())))
        };
        match (carried, tokens.both()) {
            (Carried::Refused(reason), _) if tokens.is_some() => field("prompt_token_ids", reason),
            (Carried::After(known), Some((prompt, _))) => {
                let ids = prompt.parse(usize::MAX).map_err(|error| {
                    let field = self.path().then("prompt_token_ids");
                    ApiError::invalid(field.clone(), format!("`{field}` {error}"))
                })?;
                if ids.starts_with(known) {
                    return Ok(());
                }
                field("prompt_token_ids", "carries ids that do not start with those of the response in front")
            }
            _ => Ok(()),
        }
    }

    fn needs<T>(&self, field: &str, value: Option<T>) -> Result<T, ApiError> {
        value.ok_or_else(|| self.wrong(format!("`input[{}].{field}` is missing", self.0)))
    }
}

/// Returns a part as a chat has it: a text, or an image that the turn reads.
fn content_part(part: Value, place: &Place) -> Result<ContentPart, ApiError> {
    match part {
        Value::Object(fields) if fields.get("type").and_then(Value::as_str) == Some("input_image") => {
            Ok(ContentPart::Object { kind: "input_image".to_owned(), fields })
        }
        text => Ok(text_part(part_text(&text, place)?)),
    }
}

/// Returns the text of a part; other parts than texts are refused.
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

/// Returns the reasoning of an item; a summary counts only if there is nothing else.
fn thoughts(item: &WireItem, at: &Place) -> Result<String, ApiError> {
    let texts = |field: &str, parts: &Option<Value>| match parts {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::Array(parts)) => parts
            .iter()
            .map(|part| match (part.get("type").and_then(Value::as_str), part.get("text").and_then(Value::as_str)) {
                (Some("reasoning_text" | "summary_text" | "text"), Some(text)) => Ok(text),
                _ => Err(at.wrong(format!("`input[{}].{field}` has a part that is no text", at.0))),
            })
            .collect(),
        Some(_) => Err(at.wrong(format!("`input[{}].{field}` is no list of parts", at.0))),
    };
    let (content, summary) = (texts("content", &item.content)?, texts("summary", &item.summary)?);
    let said = item.reasoning.as_ref().or(item.reasoning_content.as_ref());
    let text = [Some(&content), said, Some(&summary)].into_iter().flatten().find(|text| !text.is_empty());
    Ok(text.cloned().unwrap_or_default())
}

/// Whether an item holds a thought that only the server that made it can read.
fn is_encrypted(item: &WireItem) -> bool {
    item.encrypted_content.as_ref().is_some_and(|content| !content.is_null())
}

/// Returns what an item says of a thought, its parts on a line each as in vLLM, and `None` where it only sums it up.
fn thought_of(item: &WireItem) -> Option<String> {
    let parts = item.content.as_ref().and_then(Value::as_array).unwrap_or_default();
    let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect();
    let said = item.reasoning.as_ref().or(item.reasoning_content.as_ref());
    if texts.is_empty() { said.cloned() } else { Some(texts.join("\n")) }
}

/// Makes the arguments of a custom tool, which is a function with one text.
fn custom_arguments(input: String) -> String {
    Value::Object(Object::from_iter([(CUSTOM_INPUT.to_owned(), Value::String(input))])).to_json_string()
}
