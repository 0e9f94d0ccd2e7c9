//! Several system messages where there can be one, and messages of developers for templates that do not know the role.

use super::template::ContentFormat;
use crate::json::{Object, Value};

/// What a template can show of messages that instruct the model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instructions<'t> {
    /// The template's source, which spells the roles that it knows.
    pub(super) source: &'t str,
    /// The form of contents that it wants.
    pub(super) format: ContentFormat,
    /// Whether it refuses system messages that are not the first.
    pub(super) system_first: bool,
}

impl Instructions<'_> {
    /// Gathers all system messages at the front, where the template wants that, and returns where each message went.
    ///
    /// Developer messages become system messages for a template that does not know the role. Then all are gathered into one
    /// text too, as vLLM does.
    pub(super) fn gather(self, mut messages: Vec<Object>) -> (Vec<Object>, Vec<usize>) {
        let knows_developers = self.source.contains("\"developer\"") || self.source.contains("'developer'");
        let folds = !knows_developers && messages.iter().any(|message| has_role(message, "developer"));
        if folds {
            messages.iter_mut().filter(|message| has_role(message, "developer")).for_each(make_system);
        }
        let is_inline = messages.iter().skip(1).any(|message| has_role(message, "system"));
        if !is_inline || !(folds || self.system_first) {
            let places = (0..messages.len()).collect();
            return (messages, places);
        }
        let texts = messages.iter().filter(|message| has_role(message, "system")).map(flat_text);
        let text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
        let content = if folds { Value::String(text) } else { self.content(text) };
        let first = [("role".to_owned(), Value::from("system")), ("content".to_owned(), content)];
        let mut gathered = vec![Object::from_iter(first)];
        let mut places = Vec::with_capacity(messages.len());
        for message in messages {
            if has_role(&message, "system") {
                places.push(0);
            } else {
                places.push(gathered.len());
                gathered.push(message);
            }
        }
        (gathered, places)
    }

    /// A text as the content of a message.
    fn content(self, text: String) -> Value {
        match self.format {
            ContentFormat::String => Value::String(text),
            ContentFormat::OpenAi => {
                let part = [("type".to_owned(), Value::from("text")), ("text".to_owned(), Value::String(text))];
                Value::Array(vec![Value::Object(Object::from_iter(part))])
            }
        }
    }
}

fn has_role(message: &Object, role: &str) -> bool {
    message.get("role").and_then(Value::as_str) == Some(role)
}

fn make_system(message: &mut Object) {
    message.insert("role".to_owned(), Value::from("system"));
    message.shift_remove("tools");
}

/// What a message says. It has no images: those of messages that may be moved are refused before.
fn flat_text(message: &Object) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.as_object()?.get("text")?.as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}
