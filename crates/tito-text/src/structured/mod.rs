//! Structured outputs: what a request demands of an output, as a grammar over tokens.
//!
//! Owns the constraints of vLLM's `structured_outputs`, their compilation with `llguidance`, and the cache of compiled
//! grammars. Refuses what it could only approximate, and everything about HTTP. The only module that names
//! `llguidance`.

mod after_reasoning;
mod cancellation;
mod classes;
mod compile;
mod cost;
mod demand;
mod ebnf;
mod either;
mod error;
mod follower;
mod following;
mod forceable;
mod format;
mod formats;
mod grammars;
mod groups;
mod json_kinds;
mod json_schema;
mod lark;
mod lark_json;
mod pieces;
mod references;
mod regular;
mod schemas;
mod single_call;
mod size;
mod spelled;
mod tags;
#[cfg(test)]
pub(crate) mod tests;
mod thinking_budget;
mod told_apart;
mod vocabulary;
mod watchdog;

pub use after_reasoning::{ReasoningEnd, after_reasoning};
pub use cancellation::Cancellation;
pub use demand::Demand;
pub use error::StructuredError;
pub use forceable::Forceable;
pub use format::{Format, Tag};
pub use grammars::Grammars;
pub use json_schema::{JsonOptions, MOST_WHITESPACE};
pub use references::unescaped_segment;
pub use single_call::SingleCall;
pub use thinking_budget::{ThinkingBudget, Thoughts};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use size::{measure, take};

/// What an output must be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Constraint {
    /// Any JSON object.
    JsonObject(JsonOptions),
    /// JSON that a schema describes.
    Json(Value, JsonOptions),
    /// A text that a regular expression matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Text of a grammar, in EBNF or Lark.
    Grammar(String),
    /// Text and JSON between tags.
    Tags(Format, JsonOptions),
}

impl Constraint {
    /// The constraint, with JSON written as the server demands it too.
    #[must_use]
    pub fn within(mut self, server: &JsonOptions) -> Self {
        if let Self::JsonObject(options) | Self::Json(_, options) | Self::Tags(_, options) = &mut self {
            options.compact |= server.compact;
            options.closed |= server.closed;
        }
        self
    }

    /// Whether its texts have more than `bytes` bytes together.
    pub fn is_longer_than(&self, bytes: usize) -> bool {
        let mut left = Some(bytes);
        self.measure(&mut left);
        left.is_none()
    }

    fn measure(&self, left: &mut Option<usize>) {
        match self {
            Self::JsonObject(_) => {}
            Self::Json(schema, _) => measure(schema, left),
            Self::Regex(text) | Self::Grammar(text) => take(text.len(), left),
            Self::Choice(choices) => choices.iter().for_each(|choice| take(choice.len() + 1, left)),
            Self::Tags(format, _) => format.measure(left),
        }
    }
}
