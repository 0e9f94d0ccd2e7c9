//! Structured outputs: what a request demands of an output, as a grammar over tokens.
//!
//! Owns the constraints of vLLM's `structured_outputs`, their compilation with `llguidance`, and the cache of compiled
//! grammars. Refuses what it could only approximate, and everything about HTTP. The only module that names
//! `llguidance`.

mod after_reasoning;
mod ebnf;
mod error;
mod following;
mod format;
mod grammars;
mod json_schema;
mod lark;
mod tags;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use after_reasoning::{ReasoningEnd, after_reasoning};
pub use error::StructuredError;
pub use format::{Ends, Format, Tag};
pub use grammars::Grammars;
pub use json_schema::JsonOptions;

use serde_json::Value;

/// What an output must be.
#[derive(Debug, Clone, PartialEq)]
pub enum Constraint {
    /// Any JSON object.
    JsonObject(JsonOptions),
    /// JSON that a schema describes.
    Json(Value, JsonOptions),
    /// Text that a regular expression matches, all of it.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Text of a grammar, in EBNF or Lark.
    Grammar(String),
    /// Text and JSON between tags.
    Tags(Format, JsonOptions),
}
