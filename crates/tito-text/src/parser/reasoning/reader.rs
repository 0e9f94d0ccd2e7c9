//! What finds reasoning in the text of an answer.

use std::fmt;

use super::super::Piece;

/// Reads the reasoning of one generation, ahead of a reader of calls.
pub(in super::super) trait ReasoningReader: Send + fmt::Debug {
    /// Takes the next piece of text, and appends what became certain; never a call.
    fn push(&mut self, text: &str, out: &mut Vec<Piece>);

    /// Takes the end of the text, and appends what is left. `calls_in` says whether a text holds a call, which ends
    /// reasoning that has no end.
    fn finish(&mut self, calls_in: &dyn Fn(&str) -> bool, out: &mut Vec<Piece>);

    /// Whether the text so far ends in reasoning.
    fn is_reasoning(&self) -> bool;
}
