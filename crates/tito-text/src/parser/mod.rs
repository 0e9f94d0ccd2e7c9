//! The formats in which models write: text to reasoning, content and calls, and what forces calls, one file for each
//! format.
//!
//! Names are those of vLLM 0.33 (`reasoning/`, `tool_parsers/`, `parser/`). Results are vLLM's too, unless vLLM loses
//! something. Refuses ids, and to know what a request is. An [`OutputParser`] reads one generation: first a reader of
//! reasoning, and then a reader of calls reads the rest. The crates `reasoning-parser` and `tool-parser` are not used:
//! they spell arguments as `serde_json` does where vLLM spells them as Python's `json.dumps`, and keep calls of a text
//! whose other calls cannot be read.
//!
//! What deviates on purpose:
//! - Nothing that was sampled is lost: but for a format's own marks and white space, every character is in the reasoning,
//!   the content or a call. What cannot be read as a call is content.
//! - Thoughts end at the mark that ends them. A call within thoughts, or a mark of one that they only mention, is part of
//!   them; it is read as a call only where the thoughts never end. vLLM ends thoughts at the mark.
//! - A stream gives what the whole text gives, whatever the pieces are: what a later text could still change is kept back.
//!   vLLM reads streams by other rules than whole answers, and sends calls that it does not find in the whole text.

mod auto;
mod marker;
mod output;
mod reasoning;
mod suffix;
#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "internals"))]
pub mod told;
mod tools;
mod unread;

pub use auto::{NoFormat, reasoning_marks, reasoning_parser_of, tool_marks, tool_parser_of};
pub use output::{OutputFormat, OutputParser};
pub use reasoning::{AnswerForm, CallInReasoning, PromptReasoning, ReasoningFormat, ReasoningMarks, ReasoningParser};
pub use suffix::SeveralSuffixes;
#[cfg(any(test, feature = "internals"))]
pub use tools::ForcedBy;
pub use tools::{ForcedCall, ForcingError, ToolFormat, ToolParser};

/// What a text turned out to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// What the model thinks. An empty text says that it thought, but nothing in particular.
    Reasoning(String),
    /// The text of the answer.
    Content(String),
    /// A call that it makes.
    Call(ToolCall),
}

/// Which special tokens have a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecialTokens {
    /// The special tokens that the request wants have a text.
    AsAsked,
    /// All of them.
    All,
    /// These, whatever the request wants.
    Only(Vec<&'static str>),
}

/// A call as a model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// What the answer to the call refers to: random, or the model's own.
    pub id: String,
    /// The function's name.
    pub name: String,
    /// The arguments as JSON text, in Python's spelling where they were read.
    pub arguments: String,
}

impl ToolCall {
    /// A call with a random id in vLLM's spelling.
    pub(crate) fn new(name: String, arguments: String) -> Self {
        let (_, random) = uuid::Uuid::new_v4().as_u64_pair();
        Self { id: format!("chatcmpl-tool-{random:016x}"), name, arguments }
    }

    /// A call with the kind of id that Mistral's templates accept.
    fn with_short_id(name: String, arguments: String) -> Self {
        const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        let mut random = uuid::Uuid::new_v4().as_u128();
        let mut letter = || {
            let at = usize::try_from(random % 62).expect("less than 62");
            random /= 62;
            char::from(LETTERS[at])
        };
        Self { id: std::iter::repeat_with(&mut letter).take(9).collect(), name, arguments }
    }
}
