//! What an assistant's message may say where no template looks.

use super::{Content, ContentPart, InvalidTool};
use crate::json::Value;

/// The fields of an assistant's message that no template reads. They may be anything in messages of other roles.
#[derive(Debug, Default)]
pub struct UnreadFields {
    /// A call, from before there were `tool_calls`.
    pub function_call: Option<Value>,
    /// Why the model does not do what it was asked.
    pub refusal: Option<Value>,
    /// What the model said aloud.
    pub audio: Option<Value>,
}

fn says(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(_) => true,
    }
}

impl UnreadFields {
    /// Refuses what would be lost: a call beside no `tool_calls`, and words that `content` does not have.
    ///
    /// # Errors
    ///
    /// If a field says what no other field says.
    pub fn refuse_lost(&self, content: &Content, makes_calls: bool) -> Result<(), InvalidTool> {
        if says(self.function_call.as_ref()) && !makes_calls {
            return Err(InvalidTool::new("`function_call` of a message is not served: send `tool_calls`"));
        }
        let has = |text: Option<&str>| text.is_some_and(|text| texts(content).any(|said| said.contains(text)));
        if says(self.refusal.as_ref()) && !has(self.refusal.as_ref().and_then(Value::as_str)) {
            return Err(InvalidTool::new("`refusal` of a message is not served: send it as `content`"));
        }
        let is_heard = match self.audio.as_ref().and_then(|audio| audio.get("transcript")) {
            Some(Value::String(transcript)) => has(Some(transcript)),
            // The content is what was said, since there is nothing else to read.
            _ => texts(content).any(|said| !said.is_empty()),
        };
        if says(self.audio.as_ref()) && !is_heard {
            return Err(InvalidTool::new("`audio` of a message is not served: send what it says as `content`"));
        }
        Ok(())
    }
}

/// Returns the texts of a content, those of refusals included.
fn texts(content: &Content) -> impl Iterator<Item = &str> {
    let (text, parts) = match content {
        Content::Empty => (None, &[][..]),
        Content::Text(text) => (Some(text.as_str()), &[][..]),
        Content::Parts(parts) => (None, parts.as_slice()),
    };
    text.into_iter().chain(parts.iter().filter_map(of_part))
}

fn of_part(part: &ContentPart) -> Option<&str> {
    match part {
        ContentPart::Text(text) => Some(text),
        ContentPart::Object { fields, .. } => {
            ["text", "refusal"].iter().find_map(|key| fields.get(*key).and_then(Value::as_str))
        }
        ContentPart::Image(_) => None,
    }
}
