//! Formats of which only the whole text says whether it makes calls: one that cannot be read spoils all.

use std::fmt;

use super::call_format::CallReader;
use crate::parser::{Piece, marker, unread::Unread};

/// Reads the calls of a text that begins with a marker, and what stands between them; `None` where it makes no calls.
type ReadCalls = Box<dyn Fn(&str) -> Option<Vec<Piece>> + Send>;

/// What stands before the first marker is content and goes out as it comes; the rest waits for the end.
pub(super) struct UntilEnd {
    markers: &'static [&'static str],
    calls: ReadCalls,
    /// What was not given out.
    held: Unread,
    /// Whether `held` begins with a marker.
    met: bool,
}

impl UntilEnd {
    pub(super) fn new(
        markers: &'static [&'static str],
        calls: impl Fn(&str) -> Option<Vec<Piece>> + Send + 'static,
    ) -> Self {
        Self { markers, calls: Box::new(calls), held: Unread::default(), met: false }
    }
}

impl fmt::Debug for UntilEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntilEnd").field("held", &self.held).field("met", &self.met).finish_non_exhaustive()
    }
}

impl CallReader for UntilEnd {
    fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.held.push_str(text);
        if self.met {
            return;
        }
        let found = self.held.first(self.markers);
        self.met = found.is_some();
        let end = found.map_or_else(|| self.held.len() - marker::begun(&self.held, self.markers), |(at, _)| at);
        let content = self.held.take(end);
        if !content.is_empty() {
            out.push(Piece::Content(content));
        }
    }

    fn finish(&mut self, out: &mut Vec<Piece>) {
        let held = self.held.take_all();
        match self.met.then(|| (self.calls)(&held)).flatten() {
            Some(calls) => out.extend(calls),
            None if held.is_empty() => {}
            None => out.push(Piece::Content(held)),
        }
    }

    fn is_in_call(&self) -> bool {
        self.met
    }
}
