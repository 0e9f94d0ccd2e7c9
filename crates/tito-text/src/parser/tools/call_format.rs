//! What makes a format of calls: its name, how it is read, what forces it, and what else the server has to know of it.

use std::fmt;

use super::forcing::Forcing;
use crate::{
    chat::FunctionTool,
    parser::{Piece, suffix},
};

/// Reads the calls of one generation, out of text that a reader of reasoning has left.
///
/// What was pushed in pieces gives what the whole text gives. [`Piece::Reasoning`] comes from formats only in which
/// reasoning cannot be told from calls.
pub(in crate::parser) trait CallReader: Send + fmt::Debug {
    /// Takes the next piece of text, and appends what became certain.
    fn push(&mut self, text: &str, out: &mut Vec<Piece>);

    /// Takes note that the text was cut off, before its end is taken: the model did not end it.
    fn cut_off(&mut self) {}

    /// Takes the end of the text, and appends what is left.
    fn finish(&mut self, out: &mut Vec<Piece>);

    /// Whether the text so far ends in a call, or in what may turn out to be one: marks of reasoning are text there.
    fn is_in_call(&self) -> bool;

    /// Whether the text so far ends in reasoning, in formats that have it.
    fn is_reasoning(&self) -> bool {
        false
    }
}

/// Makes the reader of a format for a request's tools.
type MakeReader = fn(&[FunctionTool]) -> Box<dyn CallReader>;

/// Makes the reader of a format whose tokens a checkpoint spells so.
pub(super) type MakeReaderOfTokens = fn(&'static [&'static str], &[FunctionTool]) -> Box<dyn CallReader>;

/// A format in which a model writes calls.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property that formats have or have not")]
pub(super) struct CallFormat {
    /// vLLM's name.
    pub(super) name: &'static str,
    pub(super) make: MakeReader,
    pub(super) forcing: Forcing,
    /// Whether content before calls loses the white space at its end.
    pub(super) trims: bool,
    /// Whether special tokens stay in the text, because markers may be such.
    pub(super) keeps_special_tokens: bool,
    /// All markers that may be special tokens.
    pub(super) marks: &'static [&'static str],
    /// The markers that certainly begin calls, also where nothing else was expected.
    pub(super) begins_call: &'static [&'static str],
    /// The marker of each call, in formats whose `begins_call` stands for several of them.
    pub(super) begins_each: &'static [&'static str],
    /// Whether special tokens that are no markers have no text.
    pub(super) drops_others: bool,
    /// Whether an answer that neither says nor calls anything has null for content.
    pub(super) silence_is_null: bool,
    /// Whether everything is in channels, reasoning too.
    pub(super) channels: bool,
    /// Tokens without which vLLM refuses to start with this parser.
    pub(super) needs: &'static [&'static str],
    /// Makes the reader of `marks` as a checkpoint spells them; `None` where all spell them alike.
    pub(super) of_tokens: Option<MakeReaderOfTokens>,
    /// What the checkpoint's marks end in, before their last character.
    pub(super) suffix: &'static str,
}

impl CallFormat {
    pub(super) const fn new(name: &'static str, make: MakeReader, forcing: Forcing) -> Self {
        Self {
            name,
            make,
            forcing,
            trims: false,
            keeps_special_tokens: true,
            marks: &[],
            begins_call: &[],
            begins_each: &[],
            drops_others: false,
            silence_is_null: false,
            channels: false,
            needs: &[],
            of_tokens: None,
            suffix: "",
        }
    }

    /// The reader of calls of these tools.
    pub(super) fn reader(&self, tools: &[FunctionTool]) -> Box<dyn CallReader> {
        match self.of_tokens {
            Some(make) => make(self.marks, tools),
            None => (self.make)(tools),
        }
    }

    /// The same format, whose marks have a suffix.
    pub(super) fn with_suffix(&self, suffix: &str) -> Self {
        Self {
            marks: suffix::kept(self.marks, suffix),
            begins_call: suffix::kept(self.begins_call, suffix),
            begins_each: suffix::kept(self.begins_each, suffix),
            needs: suffix::kept(self.needs, suffix),
            suffix: String::from(suffix).leak(),
            ..*self
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
