//! What makes a format of calls: its name, how it is read, what forces it, and what else the server has to know of it.

use std::fmt;

use super::forcing::Forcing;
use crate::{chat::FunctionTool, parser::Piece};

/// Reads the calls of one generation, out of text that a reader of reasoning has left.
///
/// What was pushed in pieces gives what the whole text gives. [`Piece::Reasoning`] comes from formats only in which
/// reasoning cannot be told from calls.
pub(in crate::parser) trait CallReader: Send + fmt::Debug {
    /// Takes the next piece of text, and appends what became certain.
    fn push(&mut self, text: &str, out: &mut Vec<Piece>);

    /// Takes the end of the text, and appends what is left.
    fn finish(&mut self, out: &mut Vec<Piece>);

    /// Whether the text so far ends in reasoning, in formats that have it.
    fn is_reasoning(&self) -> bool {
        false
    }
}

/// Makes the reader of a format for a request's tools.
type MakeReader = fn(&[FunctionTool]) -> Box<dyn CallReader>;

/// A format in which a model writes calls.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property that formats have or have not")]
pub(super) struct CallFormat {
    /// vLLM's name.
    pub(super) name: &'static str,
    pub(super) reader: MakeReader,
    pub(super) forcing: Forcing,
    /// Whether content before calls loses the white space at its end.
    pub(super) trims: bool,
    /// Whether special tokens stay in the text, because markers may be such.
    pub(super) keeps_special_tokens: bool,
    /// All markers that may be special tokens.
    pub(super) marks: &'static [&'static str],
    /// The markers that certainly begin calls, also where nothing else was expected.
    pub(super) begins_call: &'static [&'static str],
    /// Whether special tokens that are no markers have no text.
    pub(super) drops_others: bool,
    /// Whether an answer that neither says nor calls anything has null for content.
    pub(super) silence_is_null: bool,
    /// Whether everything is in channels, reasoning too.
    pub(super) channels: bool,
    /// Tokens without which vLLM refuses to start with this parser.
    pub(super) needs: &'static [&'static str],
}

impl CallFormat {
    pub(super) const fn new(name: &'static str, reader: MakeReader, forcing: Forcing) -> Self {
        Self {
            name,
            reader,
            forcing,
            trims: false,
            keeps_special_tokens: true,
            marks: &[],
            begins_call: &[],
            drops_others: false,
            silence_is_null: false,
            channels: false,
            needs: &[],
        }
    }

    /// A format that vLLM reads with its `parser/engine`. These trim white space, and have null for silence.
    pub(super) const fn engine(
        name: &'static str,
        reader: MakeReader,
        forcing: Forcing,
        marks: &'static [&'static str],
    ) -> Self {
        Self { trims: true, silence_is_null: true, marks, drops_others: true, ..Self::new(name, reader, forcing) }
    }
}
