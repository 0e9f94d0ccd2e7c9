//! `minimax_m2_append_think`: everything is content, after the `<think>` that the prompt had.

use super::{PieceSink, ReasoningReader};
use crate::parser::Piece;

/// Puts the start in front of the text.
#[derive(Debug, Default)]
pub(super) struct AppendThink {
    started: bool,
}

impl AppendThink {
    fn start(&mut self, out: &mut dyn PieceSink) {
        if !std::mem::replace(&mut self.started, true) {
            out.put(Piece::Content("<think>".to_owned()));
        }
    }
}

impl ReasoningReader for AppendThink {
    fn push(&mut self, text: &str, out: &mut dyn PieceSink) {
        self.start(out);
        out.put(Piece::Content(text.to_owned()));
    }

    fn finish(&mut self, _calls_in: &dyn Fn(&str) -> bool, out: &mut dyn PieceSink) {
        self.start(out);
    }

    fn is_reasoning(&self) -> bool {
        false
    }
}
