//! The messages of a request as messages of Harmony: who speaks, on which channel, and what closes it.
//!
//! Follows vLLM 0.33, `entrypoints/openai/parser/harmony_utils.py` and `entrypoints/openai/responses/harmony.py`. What
//! vLLM would drop without a word, as a refusal among the parts of a content, is refused.

use std::collections::HashMap;

use super::{marks::Mark, preamble::Circumstances, settings::Effort};
use crate::{
    chat::{AssistantItem, Content, ContentPart, FunctionTool, Message, ToolCall},
    json::{Path, Value},
    prompt::PromptError,
};

/// A message of Harmony.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spoken {
    /// The index of the request's message that it was made of; `None` for the system message.
    pub(super) source: Option<usize>,
    /// Who speaks, and to whom.
    pub(super) author: String,
    /// The channel, and what else stands there.
    pub(super) channel: Option<&'static str>,
    /// What is said, in pieces that are encoded one by one.
    pub(super) texts: Vec<String>,
    /// The token that ends it.
    pub(super) close: Mark,
}

const FINAL: &str = "final";
const ANALYSIS: &str = "analysis";

impl Spoken {
    fn new(source: Option<usize>, author: &str, text: impl Into<String>) -> Self {
        Self { source, author: author.to_owned(), channel: None, texts: vec![text.into()], close: Mark::End }
    }

    fn by_assistant(source: usize, channel: &'static str, text: impl Into<String>) -> Self {
        Self { channel: Some(channel), ..Self::new(Some(source), "assistant", text) }
    }

    fn call(source: usize, call: &ToolCall) -> Self {
        Self {
            author: format!("assistant to=functions.{}", call.name),
            close: Mark::Call,
            ..Self::by_assistant(source, "commentary json", call.arguments.clone().unwrap_or_default())
        }
    }

    /// Whether the model wrote it.
    pub(super) fn is_by_assistant(&self) -> bool {
        self.channel.is_some() && self.author.starts_with("assistant")
    }
}

/// The messages of a conversation, the system message first. Thoughts before the last final answer are left out.
pub(super) fn spoken(
    messages: &[Message],
    tools: &[FunctionTool],
    effort: Effort,
    circumstances: &Circumstances<'_>,
) -> Result<Vec<Spoken>, PromptError> {
    let instructs = |message: &&Message| message.role.instructs();
    let leading = messages.first().filter(instructs);
    let instructions = leading.map(|message| flat(0, message)).transpose()?.flatten();
    let mut all = vec![Spoken::new(None, "system", circumstances.system(instructions.as_deref(), effort))];
    let is_instructed = instructions.as_ref().is_some_and(|text| !text.is_empty());
    if (is_instructed && !circumstances.settings.system_instructions) || !tools.is_empty() {
        let text = circumstances.developer(instructions.as_deref(), tools);
        all.push(Spoken::new(leading.map(|_| 0), "developer", text));
    }
    let mut callers = Callers::of(messages);
    for (index, message) in messages.iter().enumerate().skip(leading.iter().len()) {
        check_names(index, message)?;
        all.extend(spoken_of(index, message, &callers, circumstances)?);
        callers.earlier.extend(calls(message));
    }
    Ok(without_old_thoughts(all))
}

/// Leaves out the thoughts that precede the last final answer, as vLLM does.
fn without_old_thoughts(all: Vec<Spoken>) -> Vec<Spoken> {
    let is_final = |message: &Spoken| message.channel == Some(FINAL);
    let last = all.iter().rposition(is_final).unwrap_or(0);
    let stays = |(index, message): &(usize, Spoken)| *index >= last || message.channel != Some(ANALYSIS);
    all.into_iter().enumerate().filter(stays).map(|(_, message)| message).collect()
}

fn spoken_of(
    index: usize,
    message: &Message,
    callers: &Callers<'_>,
    circumstances: &Circumstances<'_>,
) -> Result<Vec<Spoken>, PromptError> {
    match message.role.as_str() {
        "assistant" => by_assistant(index, message),
        "tool" => {
            let text = flat(index, message)?.unwrap_or_default();
            let author = format!("functions.{}", callers.of_answer(index, message)?);
            Ok(vec![Spoken { author, channel: Some("commentary to=assistant"), ..Spoken::new(Some(index), "", text) }])
        }
        role @ ("system" | "developer") => {
            let is_item = message.items.is_some();
            let Some(text) = flat(index, message)?.filter(|text| !(is_item && text.is_empty())) else {
                return Ok(Vec::new());
            };
            let is_system = role == "system" && circumstances.settings.system_instructions;
            Ok(vec![if is_system {
                Spoken::new(Some(index), "system", circumstances.system(Some(&text), Effort::default()))
            } else {
                Spoken::new(Some(index), "developer", circumstances.developer(Some(&text), &[]))
            }])
        }
        "user" => Ok(vec![Spoken { texts: texts(index, message)?, ..Spoken::new(Some(index), "user", "") }]),
        role => Err(PromptError::Content {
            field: Path::from("messages").then(index).then("role"),
            message: format!("Harmony has no role {role:?}: it has system, developer, user, assistant and tool"),
        }),
    }
}

fn by_assistant(index: usize, message: &Message) -> Result<Vec<Spoken>, PromptError> {
    let calls = message.tool_calls.as_deref().unwrap_or_default();
    if let Some(items) = &message.items {
        let spoken = items.iter().filter_map(|item| match item {
            AssistantItem::Thought(text) => Some(Spoken::by_assistant(index, ANALYSIS, text)),
            AssistantItem::Text(texts) => {
                Some(Spoken { texts: texts.clone(), ..Spoken::by_assistant(index, FINAL, "") })
            }
            AssistantItem::Call(number) => calls.get(*number).map(|call| Spoken::call(index, call)),
        });
        return Ok(spoken.collect());
    }
    let thoughts = message.reasoning.as_deref().filter(|text| !text.is_empty());
    let thoughts = thoughts.map(|text| Spoken::by_assistant(index, ANALYSIS, text));
    if calls.is_empty() {
        let texts = texts(index, message)?;
        let is_silent = texts.first().is_none_or(String::is_empty);
        let said = Spoken { texts, ..Spoken::by_assistant(index, FINAL, "") };
        return Ok(thoughts.into_iter().chain((!is_silent).then_some(said)).collect());
    }
    let preface = flat(index, message)?.filter(|text| !text.is_empty());
    let preface = preface.map(|text| Spoken::by_assistant(index, "commentary", text));
    Ok(preface.into_iter().chain(thoughts).chain(calls.iter().map(|call| Spoken::call(index, call))).collect())
}

/// The names of the functions that were called, by the id of the call; of calls with one id, that of the last.
struct Callers<'a> {
    /// Of the whole conversation.
    all: HashMap<&'a str, &'a str>,
    /// Of the messages before the present one.
    earlier: HashMap<&'a str, &'a str>,
}

impl<'a> Callers<'a> {
    fn of(messages: &'a [Message]) -> Self {
        Self { all: messages.iter().flat_map(calls).collect(), earlier: HashMap::new() }
    }

    /// The name of the function whose call a tool's message answers: the last call of that id. Of items, the last one
    /// before it, which there must be.
    fn of_answer(&self, index: usize, message: &Message) -> Result<&'a str, PromptError> {
        let id = message.tool_call_id.as_deref().unwrap_or_default();
        if message.items.is_none() {
            return Ok(self.all.get(id).copied().unwrap_or_default());
        }
        self.earlier.get(id).copied().ok_or_else(|| PromptError::Content {
            field: Path::from("messages").then(index).then("call_id"),
            message: format!("No call message found for {id}"),
        })
    }
}

/// The calls of a message: id and name.
fn calls(message: &Message) -> impl Iterator<Item = (&str, &str)> {
    message.tool_calls.iter().flatten().map(|call| (call.id.as_str(), call.name.as_str()))
}

/// Refuses names of functions that would not be read back as what they are.
fn check_names(index: usize, message: &Message) -> Result<(), PromptError> {
    let mut names = message.tool_calls.iter().flatten().map(|call| call.name.as_str()).enumerate();
    match names.find(|(_, name)| name.contains("<|")) {
        Some((number, name)) => Err(PromptError::Content {
            field: Path::from("messages").then(index).then("tool_calls").then(number).then("function").then("name"),
            message: format!("{name:?} cannot stand in the header of a message of Harmony"),
        }),
        None => Ok(()),
    }
}

/// The texts of a content, which are encoded one by one; there is always one.
fn texts(index: usize, message: &Message) -> Result<Vec<String>, PromptError> {
    match &message.content {
        Content::Empty => Ok(vec![String::new()]),
        Content::Text(text) => Ok(vec![text.clone()]),
        Content::Parts(parts) if parts.is_empty() => Ok(vec![String::new()]),
        Content::Parts(parts) => {
            let text = |(number, part)| Ok(text_of(index, number, part)?.unwrap_or_default().to_owned());
            parts.iter().enumerate().map(text).collect()
        }
    }
}

/// All texts of a content as one; `None` if it has none.
fn flat(index: usize, message: &Message) -> Result<Option<String>, PromptError> {
    match &message.content {
        Content::Empty => Ok(None),
        Content::Text(text) => Ok(Some(text.clone())),
        Content::Parts(parts) => {
            let texts = parts.iter().enumerate().map(|(number, part)| text_of(index, number, part));
            let texts: Vec<Option<&str>> = texts.collect::<Result<_, _>>()?;
            let texts: Vec<&str> = texts.into_iter().flatten().collect();
            Ok(if texts.is_empty() { None } else { Some(texts.concat()) })
        }
    }
}

fn text_of(index: usize, number: usize, part: &ContentPart) -> Result<Option<&str>, PromptError> {
    let refused = |message: String| {
        let field = Path::from("messages").then(index).then("content").then(number);
        Err(PromptError::Content { field, message })
    };
    match part {
        ContentPart::Text(text) => Ok(Some(text)),
        ContentPart::Object { kind, fields } if matches!(kind.as_str(), "text" | "input_text" | "output_text") => {
            match fields.get("text") {
                Some(Value::String(text)) => Ok(Some(text)),
                None | Some(Value::Null) => Ok(None),
                Some(_) => refused("`text` of a content part must be a string".to_owned()),
            }
        }
        ContentPart::Object { kind, .. } => refused(format!(
            "Harmony has no content parts of type '{kind}'. Supported types: text, input_text, output_text."
        )),
        ContentPart::Image(_) => refused("Harmony has no images.".to_owned()),
    }
}
