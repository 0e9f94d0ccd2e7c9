//! The formats in which models write tool calls: text to calls, one file for each format.
//!
//! Names and results are those of vLLM 0.32 (`tool_parsers/`). Refuses ids, and to know which request wants calls.
//!
//! What deviates on purpose:
//! - A stream gives what the whole text gives: from the first marker on, text is kept back until the generation ends.
//!   vLLM reads streams by other rules than whole answers, and sends calls that it does not find in the whole text.

mod hermes;
mod stream;

pub use stream::ToolCallStream;

/// A call as a model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// What the answer to the call refers to: random, nobody can guess it.
    pub id: String,
    /// The function's name.
    pub name: String,
    /// The arguments as JSON text, in Python's spelling.
    pub arguments: String,
}

impl ToolCall {
    fn new(name: String, arguments: String) -> Self {
        Self { id: format!("chatcmpl-tool-{}", uuid::Uuid::new_v4().simple()), name, arguments }
    }
}

/// A format of tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolParser {
    /// JSON objects between `<tool_call>` and `</tool_call>`: Hermes, Qwen 2.5, Qwen 3.
    Hermes,
}

impl ToolParser {
    /// vLLM's names of the formats that are known here.
    pub const NAMES: [&str; 2] = ["hermes", "qwen3_json"];

    /// The format that vLLM calls so.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "hermes" | "qwen3_json" => Some(Self::Hermes),
            _ => None,
        }
    }

    /// Where calls begin.
    fn marker(self) -> &'static str {
        match self {
            Self::Hermes => hermes::MARKER,
        }
    }

    /// The calls of a text that begins with the marker; `None` where one of them cannot be read.
    fn calls(self, text: &str) -> Option<Vec<ToolCall>> {
        match self {
            Self::Hermes => hermes::calls(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_format_and_no_other_has() {
        assert!(ToolParser::NAMES.iter().all(|name| ToolParser::named(name).is_some()));
        assert_eq!(ToolParser::named("Hermes"), None);
    }

    #[test]
    fn ids_are_those_of_vllm_and_never_the_same() {
        let [one, other] = [(), ()].map(|()| ToolCall::new("f".to_owned(), "{}".to_owned()).id);
        assert_ne!(one, other);
        let digits = one.strip_prefix("chatcmpl-tool-").unwrap();
        assert!(digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{one}");
    }
}
