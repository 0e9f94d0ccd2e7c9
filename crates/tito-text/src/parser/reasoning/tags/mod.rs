//! Reasoning between marks such as `<think>` and `</think>` (vLLM `reasoning/`, `parser/engine/`).
//!
//! What deviates on purpose:
//! - `deepseek_r1` keeps what stands in front of `<think>`, unless it is white space; vLLM's JSON answers lose it, and
//!   take a `<think>` after the end for the start.
//! - A blank answer of `nemotron_v3` that was told not to think is content; vLLM's JSON answers have it for reasoning.

use super::{AnswerForm, CallInReasoning, PieceSink, ReasoningReader, label::Label, styles::Tags, wrapper::Wrapper};
use crate::parser::{
    Piece, marker,
    unread::{Spaced, Unread},
};

/// Tells reasoning from the rest.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "two say where the text is, two what was given out")]
pub(super) struct TagReader {
    tags: &'static Tags,
    form: AnswerForm,
    /// Whether the token that ends the reasoning is still to come.
    awaits_end: bool,
    /// The marks that begin calls.
    begins_call: Vec<&'static str>,
    reasoning: bool,
    /// Whether reasoning that the prompt has ended may begin again: nothing but white space was written so far.
    may_begin: bool,
    /// What is written since a mark within reasoning that begins a call: reasoning if that ends, and what follows it if
    /// it does not and there is a call.
    pending: Option<String>,
    /// The start of what may be a mark.
    held: Unread,
    /// White space that is reasoning only if more of it follows.
    space: Spaced,
    /// Whether a start was met.
    started: bool,
    /// Whether reasoning was given out.
    thought: bool,
    /// Reasoning that is content if no other content comes, and the white space after it; `None` where that is not so.
    forced: Option<(String, String)>,
    /// What the reasoning that begins now may begin with.
    label: Option<Label>,
    /// What is around the answer.
    wrapper: Option<Wrapper>,
}

impl TagReader {
    /// A reader of a text that begins with reasoning.
    pub(super) fn in_reasoning(
        tags: &'static Tags,
        begins_call: &[&'static str],
        forces_content: bool,
        mut form: AnswerForm,
    ) -> Self {
        if form.call == CallInReasoning::Ends && !tags.call.is_some_and(|mark| begins_call.contains(&mark)) {
            // The calls that are held begin with another mark.
            form.call = CallInReasoning::EndsUnended;
        }
        let mut begins_call = begins_call.to_vec();
        begins_call.extend(tags.call.filter(|_| form.call != CallInReasoning::Text));
        Self {
            tags,
            form,
            awaits_end: false,
            begins_call,
            reasoning: true,
            may_begin: false,
            pending: None,
            held: Unread::default(),
            space: Spaced::default(),
            started: false,
            thought: false,
            forced: forces_content.then(Default::default),
            label: tags.label.map(Label::new),
            wrapper: tags.wrapper.filter(|_| !form.to_the_letter).map(Wrapper::new),
        }
    }

    /// A reader of a text that does not begin with reasoning, but where that may begin.
    pub(super) fn after_reasoning(tags: &'static Tags, begins_call: &[&'static str], form: AnswerForm) -> Self {
        Self { reasoning: false, may_begin: true, label: None, ..Self::in_reasoning(tags, begins_call, false, form) }
    }

    /// The marks that count now.
    fn marks(&self) -> Vec<&'static str> {
        if self.form.to_the_letter && !self.reasoning {
            return Vec::new();
        }
        let Tags { starts, ends, drops, reopens, first_only, .. } = *self.tags;
        let may_start = match (self.reasoning, first_only) {
            (true, true) => !self.started,
            (true, false) => true,
            (false, _) => self.may_begin || (reopens && !first_only),
        };
        let marks = [
            (starts, may_start),
            (ends, (self.reasoning || !first_only) && !self.awaits_end),
            (drops, !self.reasoning),
            (self.begins_call.as_slice(), self.reasoning && self.pending.is_none()),
            (self.tags.call.as_slice(), self.reasoning && self.ends_at_call()),
        ];
        marks.into_iter().filter(|(_, count)| *count).flat_map(|(marks, _)| marks).copied().collect()
    }

    fn text(&mut self, text: &str, out: &mut Vec<Piece>) {
        if text.is_empty() {
        } else if let Some(pending) = &mut self.pending {
            pending.push_str(text);
        } else if self.reasoning {
            self.think(text, out);
        } else {
            self.may_begin &= marker::is_blank(text);
            match &mut self.wrapper {
                Some(wrapper) => wrapper.push(text, out),
                None => out.push(Piece::Content(text.to_owned())),
            }
        }
    }

    fn think(&mut self, text: &str, out: &mut Vec<Piece>) {
        let Some(label) = &mut self.label else { return self.say(text, out) };
        if let Some(text) = label.push(text) {
            self.label = None;
            self.say(&text, out);
        }
    }

    /// Gives reasoning out that is not a label.
    fn say(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.space.push_str(text);
        // White space before a start that may still come counts as nothing.
        let waits = self.tags.first_only && !self.started && !self.thought && self.space.is_blank();
        let text = if waits || self.tags.trims { self.space.take_spoken() } else { self.space.take_all() };
        self.thought |= !text.is_empty();
        if !text.is_empty() {
            out.push(Piece::Reasoning(text));
        }
    }

    fn mark(&mut self, mark: &str, out: &mut Vec<Piece>) {
        if self.ends_at_call() && self.tags.call == Some(mark) {
            self.think_pending(out);
            self.end(out);
            self.may_begin = false;
            return self.text(mark, out);
        }
        if self.begins_call.contains(&mark) {
            self.pending = Some(mark.to_owned());
            return;
        }
        if self.tags.drops.contains(&mark) {
            return;
        }
        self.may_begin = false;
        if self.tags.starts.contains(&mark) {
            // It may be an argument of what turns out to be a call.
            if let Some(pending) = &mut self.pending {
                return pending.push_str(mark);
            }
            if !self.reasoning {
                self.label = self.tags.label.map(Label::new);
            }
            if self.tags.first_only && !self.thought {
                self.space.clear();
            }
            self.started = true;
            self.reasoning = true;
            return;
        }
        self.think_pending(out);
        if self.reasoning {
            self.end(out);
        }
    }

    fn ends_at_call(&self) -> bool {
        self.form.call == CallInReasoning::Ends && !self.awaits_end
    }

    /// Gives what may have been a call out as reasoning, since it goes on.
    fn think_pending(&mut self, out: &mut Vec<Piece>) {
        if let Some(pending) = self.pending.take() {
            self.think(&pending, out);
        }
    }

    /// Ends the reasoning, as a mark or the end of the text does. White space is kept if reasoning may go on after it.
    fn end(&mut self, out: &mut Vec<Piece>) {
        if let Some(label) = self.label.take() {
            self.say(&label.finish(), out);
        }
        self.reasoning = false;
        if !self.tags.trims {
            let space = self.space.take_all();
            if !space.is_empty() || (self.tags.first_only && !self.thought) {
                self.thought = true;
                out.push(Piece::Reasoning(space));
            }
        }
    }

    /// Takes note of reasoning that may be content after all.
    fn force(&mut self, pieces: Vec<Piece>, out: &mut dyn PieceSink) {
        for piece in pieces {
            match (self.forced.as_mut(), piece) {
                (Some((reasoning, _)), Piece::Reasoning(text)) => reasoning.push_str(&text),
                (Some((_, space)), Piece::Content(text)) => {
                    space.push_str(&text);
                    // What came before is white space.
                    if !marker::is_blank(&text) {
                        self.settle(false, out);
                    }
                }
                (_, piece) => out.put(piece),
            }
        }
    }

    /// Gives out what was held back as reasoning and content, or, where there is no content, the other way round.
    fn settle(&mut self, swapped: bool, out: &mut dyn PieceSink) {
        let Some((mut reasoning, mut content)) = self.forced.take() else { return };
        if swapped {
            std::mem::swap(&mut reasoning, &mut content);
        }
        if !reasoning.is_empty() {
            out.put(Piece::Reasoning(reasoning));
        }
        if !content.is_empty() {
            out.put(Piece::Content(content));
        }
    }
}

impl ReasoningReader for TagReader {
    fn push(&mut self, text: &str, out: &mut dyn PieceSink) {
        self.held.push_str(text);
        let mut pieces = Vec::new();
        loop {
            let marks = self.marks();
            let found = self.held.first(&marks);
            let end = found.map_or_else(|| self.held.len() - marker::begun(&self.held, &marks), |(at, _)| at);
            let text = self.held.take(end);
            self.text(&text, &mut pieces);
            self.force(std::mem::take(&mut pieces), out);
            let Some((_, mark)) = found else { return };
            self.held.skip(mark.len());
            // After the text in front of it, it may be text as well, as it is in the arguments of a call.
            let counts = self.marks().contains(&mark) && (self.reasoning || !out.is_in_call());
            if counts { self.mark(mark, &mut pieces) } else { self.text(mark, &mut pieces) }
        }
    }

    fn finish(&mut self, calls_in: &dyn Fn(&str) -> bool, out: &mut dyn PieceSink) {
        let mut pieces = Vec::new();
        let said = self.form.to_the_letter && !self.reasoning;
        let held = self.held.take_all();
        self.text(&held, &mut pieces);
        let mut call = None;
        if let Some(pending) = self.pending.take() {
            if calls_in(&pending) {
                call = Some(Piece::Content(pending));
            } else {
                self.think(&pending, &mut pieces);
            }
        }
        if self.reasoning {
            self.end(&mut pieces);
        }
        if let Some(wrapper) = &mut self.wrapper {
            wrapper.finish(&mut pieces);
        }
        pieces.extend(call);
        self.force(pieces, out);
        self.settle(!said, out);
    }

    fn await_end(&mut self, awaits: bool) {
        self.awaits_end = awaits;
    }

    fn is_reasoning(&self) -> bool {
        self.reasoning
    }
}

#[cfg(test)]
mod tests;
