//! What finds reasoning in the text of an answer.

use std::fmt;

use super::super::Piece;

/// Who takes what is read, and reads calls out of it.
pub(in super::super) trait PieceSink {
    /// Takes a piece, which is never a call.
    fn put(&mut self, piece: Piece);

    /// Whether all pieces so far end in a call, whose text may hold marks of reasoning.
    fn is_in_call(&self) -> bool;
}

/// Reads the reasoning of one generation, ahead of a reader of calls.
pub(in super::super) trait ReasoningReader: Send + fmt::Debug {
    /// Takes the next piece of text, and gives out what became certain.
    fn push(&mut self, text: &str, out: &mut dyn PieceSink);

    /// Takes the end of the text, and gives out what is left. `calls_in` says whether a text holds a call, which ends
    /// reasoning that has no end.
    fn finish(&mut self, calls_in: &dyn Fn(&str) -> bool, out: &mut dyn PieceSink);

    /// Says whether the token that ends the reasoning is still to come. Until then, a text that only spells it is no mark.
    fn await_end(&mut self, _awaits: bool) {}

    /// Whether the text so far ends in reasoning.
    fn is_reasoning(&self) -> bool;
}
