//! What an assistant thought, by the names that clients have for it.

use super::InvalidTool;
use crate::json::Value;

/// The fields of a message that may say what an assistant thought. They may be anything in messages of other roles.
#[derive(Debug, Default)]
pub struct ThoughtFields {
    /// vLLM's name.
    pub reasoning: Option<Value>,
    /// `DeepSeek`'s name, which vLLM takes too; NeMo Gym sends both.
    pub reasoning_content: Option<Value>,
    /// Ollama's name.
    pub thinking: Option<Value>,
    /// Anthropic's blocks, which `LiteLLM` puts on messages of chats.
    pub thinking_blocks: Option<Value>,
    /// `OpenRouter`'s details.
    pub reasoning_details: Option<Value>,
}

impl ThoughtFields {
    /// Returns the thoughts. vLLM's own names win; without a text there, the other ones count, and have to agree.
    ///
    /// # Errors
    ///
    /// If the field that counts cannot be read, or two of them differ.
    pub fn read(self) -> Result<Option<String>, InvalidTool> {
        let own = match self.reasoning.or(self.reasoning_content) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text),
            Some(_) => return Err(InvalidTool::new("`reasoning` must be a string")),
        };
        if own.as_ref().is_some_and(|text| !text.is_empty()) {
            return Ok(own);
        }
        let mut said: Option<(&str, String)> = None;
        for (name, text) in [
            ("thinking", of_ollama(self.thinking)?),
            ("thinking_blocks", of_blocks(self.thinking_blocks.as_ref())?),
            ("reasoning_details", of_details(self.reasoning_details.as_ref())?),
        ] {
            match &said {
                _ if text.is_empty() => {}
                None => said = Some((name, text)),
                Some((_, known)) if known.trim() == text.trim() => {}
                Some((known, _)) => {
                    let message =
                        format!("`{known}` and `{name}` of a message differ: send its thoughts as `reasoning`");
                    return Err(InvalidTool::new(message));
                }
            }
        }
        Ok(said.map(|(_, text)| text).or(own))
    }
}

fn unreadable(name: &str, why: &str) -> InvalidTool {
    InvalidTool::new(format!("`{name}` of a message {why}: send its thoughts as `reasoning`"))
}

fn of_ollama(thinking: Option<Value>) -> Result<String, InvalidTool> {
    match thinking {
        // A switch says nothing.
        None | Some(Value::Null | Value::Bool(_)) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(unreadable("thinking", "is no string")),
    }
}

/// Returns the items of a list that may be missing.
fn items<'a>(name: &str, list: Option<&'a Value>) -> Result<&'a [Value], InvalidTool> {
    match list {
        None | Some(Value::Null) => Ok(&[]),
        Some(list) => list.as_array().ok_or_else(|| unreadable(name, "is no list")),
    }
}

fn string<'a>(item: &'a Value, key: &str) -> Option<&'a str> {
    item.get(key).and_then(Value::as_str)
}

/// Joins the texts of Anthropic's blocks, as `/v1/messages` does. Nobody here can read what is redacted.
fn of_blocks(blocks: Option<&Value>) -> Result<String, InvalidTool> {
    const NAME: &str = "thinking_blocks";
    let mut text = String::new();
    for block in items(NAME, blocks)? {
        match (string(block, "type"), string(block, "thinking")) {
            (Some("thinking"), Some(thought)) => text.push_str(thought),
            (Some("redacted_thinking"), _) => {}
            _ => return Err(unreadable(NAME, "has a block that is no thought")),
        }
    }
    Ok(text)
}

/// Joins the texts of `OpenRouter`'s details; summaries count only if there is nothing else. Nobody here can read what is
/// encrypted.
fn of_details(details: Option<&Value>) -> Result<String, InvalidTool> {
    const NAME: &str = "reasoning_details";
    let (mut text, mut summary) = (String::new(), String::new());
    for detail in items(NAME, details)? {
        let (key, said) = match string(detail, "type") {
            // One of several may have nothing but a signature.
            Some("reasoning.text") => ("text", &mut text),
            Some("reasoning.summary") => ("summary", &mut summary),
            Some("reasoning.encrypted") => continue,
            _ => return Err(unreadable(NAME, "has an item that is no thought")),
        };
        match detail.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::String(thought)) => said.push_str(thought),
            Some(_) => return Err(unreadable(NAME, "has a thought that is no string")),
        }
    }
    Ok(if text.is_empty() { summary } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<String>, String> {
        let fields = Value::parse(text).unwrap();
        let field = |name: &str| fields.get(name).cloned();
        let fields = ThoughtFields {
            reasoning: field("reasoning"),
            reasoning_content: field("reasoning_content"),
            thinking: field("thinking"),
            thinking_blocks: field("thinking_blocks"),
            reasoning_details: field("reasoning_details"),
        };
        fields.read().map_err(|error| error.to_string())
    }

    #[test]
    fn thoughts_are_read_by_every_name_and_once() {
        let blocks = r#""thinking_blocks":[{"type":"thinking","thinking":"h","signature":"s"},{"type":"redacted_thinking","data":"x"},{"type":"thinking","thinking":"m"}]"#;
        let details = r#""reasoning_details":[{"type":"reasoning.summary","summary":"short"},{"type":"reasoning.text","text":"hm"},{"type":"reasoning.text","text":null,"signature":"s"},{"type":"reasoning.encrypted","data":"x"}]"#;
        for (fields, thoughts) in [
            (r#""reasoning":"hm""#.to_owned(), Some("hm")),
            (r#""reasoning_content":"hm""#.to_owned(), Some("hm")),
            (r#""thinking":"hm""#.to_owned(), Some("hm")),
            (blocks.to_owned(), Some("hm")),
            (details.to_owned(), Some("hm")),
            (format!(r#"{blocks},{details},"thinking":"hm\n""#), Some("hm\n")),
            (format!(r#"{blocks},"reasoning":null"#), Some("hm")),
            (format!(r#"{blocks},"reasoning":"""#), Some("hm")),
            (format!(r#"{blocks},"reasoning":"other""#), Some("other")),
            (r#""reasoning":"a","thinking_blocks":5"#.to_owned(), Some("a")),
            (r#""reasoning_details":[{"type":"reasoning.summary","summary":"short"}]"#.to_owned(), Some("short")),
            (r#""reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]"#.to_owned(), None),
            (r#""thinking_blocks":[{"type":"redacted_thinking","data":"x"}]"#.to_owned(), None),
            (r#""thinking":null,"thinking_blocks":null,"reasoning_details":[]"#.to_owned(), None),
            (r#""thinking":false"#.to_owned(), None),
            (r#""reasoning":"""#.to_owned(), Some("")),
        ] {
            assert_eq!(read(&format!("{{{fields}}}")), Ok(thoughts.map(str::to_owned)), "{fields}");
        }
    }

    #[test]
    fn thoughts_that_cannot_be_read_are_refused_by_name() {
        for (fields, name) in [
            (r#""reasoning":5"#, "`reasoning`"),
            (r#""thinking":{"type":"enabled"}"#, "`thinking`"),
            (r#""thinking_blocks":"hm""#, "`thinking_blocks`"),
            (r#""thinking_blocks":[{"type":"thinking"}]"#, "`thinking_blocks`"),
            (r#""thinking_blocks":[{"type":"text","text":"hm"}]"#, "`thinking_blocks`"),
            (r#""reasoning_details":{"type":"reasoning.text"}"#, "`reasoning_details`"),
            (r#""reasoning_details":[{"type":"reasoning.other"}]"#, "`reasoning_details`"),
            (r#""reasoning_details":[{"type":"reasoning.text","text":["hm"]}]"#, "`reasoning_details`"),
            (r#""thinking":"a","thinking_blocks":[{"type":"thinking","thinking":"b"}]"#, "differ"),
        ] {
            let error = read(&format!("{{{fields}}}")).unwrap_err();
            assert!(error.contains(name) && error.contains("`reasoning`"), "{fields}: {error}");
        }
    }
}
