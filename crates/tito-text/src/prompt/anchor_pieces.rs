//! Which message known ids end with, where an answer has the start of a turn in it, so that turns cannot be counted.
//!
//! The ids are compared with the conversation piece by piece, from their very start: what the template writes before each answer,
//! as ids, and between two of these what the message says. An answer that spells a turn has to be told by its message to the
//! last word, but for thoughts without one: then the words of a turn behind it cannot be taken for its own, nor its own for those of
//! a turn. Refuses where more than one message fits.

use std::cell::Cell;

use super::{
    PromptError,
    comparison::{LONGEST_STOP_STRING, dense, is_blank},
    marks::{calls, texts},
    splice_context::Splice,
    turn_markers::{Anchor, TurnMarkers, places},
};
use crate::{
    TokenId,
    json::{Object, Value},
};

/// So many times as many ids as there are may be compared with messages: a hostile prefix has very many places to look at.
const MOST_PASSES: usize = 32;

/// So many of the last tokens of an answer tell whether it may be what a message says.
const TOKENS_AT_END: usize = 4;

/// How answers are compared with messages.
struct Answers<'a> {
    splice: &'a Splice<'a>,
    /// What begins each turn, or ends it.
    marker: &'a [TokenId],
    /// What begins and ends thoughts.
    marks: [&'a str; 2],
    /// How many ids may still be compared; `None` after one too many.
    left: Cell<Option<usize>>,
}

/// What a message says.
struct Said<'t> {
    message: usize,
    /// Its texts without white space.
    text: String,
    /// What the template writes before them.
    opening: &'t str,
}

impl Splice<'_> {
    /// Finds the one of `assistants` up to which the ids are the conversation.
    pub(super) fn find_by_pieces(
        &self,
        assistants: &[usize],
        turns: &TurnMarkers,
        marker: &[TokenId],
        marks: [&str; 2],
    ) -> Result<Option<Anchor>, PromptError> {
        let answers = Answers { splice: self, marker, marks, left: Cell::new(Some(MOST_PASSES * self.known.len())) };
        let said = |message| dense(&texts(self.conversation.message(message)).concat());
        let mut found = Vec::new();
        // Where the answer before may begin, and what opens it.
        let mut begun: Option<(Vec<usize>, Said<'_>)> = None;
        for (number, &message) in assistants.iter().enumerate() {
            let Some(piece) = self.piece(number, turns)? else { break };
            let mut starts = Vec::new();
            if answers.left.get().is_none() {
                return Ok(None);
            }
            for place in places(self.known, &piece.ids) {
                let follows = match &begun {
                    // A tokenizer may begin texts with a token of its own.
                    None => place == 0 || (place == 1 && self.seams.contains(self.known[0])),
                    Some((earlier, said)) => answers.any_tells(earlier, place, said)?,
                };
                if follows {
                    starts.push(place + piece.ids.len());
                }
            }
            let said = Said { message, text: said(message), opening: piece.opening };
            for &start in &starts {
                if answers.tells(&self.known[start..], &said)? {
                    found.push(Anchor { message, answer: Some(start) });
                }
            }
            begun = Some((starts, said));
        }
        let is_one = found.windows(2).all(|pair| pair[0].message == pair[1].message);
        // Whatever is compared with the message is among the ids behind the first place.
        Ok(found.into_iter().next().filter(|_| is_one && answers.left.get().is_some()))
    }
}

impl Answers<'_> {
    /// Whether an answer from one of these places up to `end` is what the message says.
    fn any_tells(&self, starts: &[usize], end: usize, said: &Said<'_>) -> Result<bool, PromptError> {
        for &start in starts.iter().take_while(|start| **start <= end && self.left.get().is_some()) {
            if self.tells(&self.splice.known[start..end], said)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether ids are what opens a turn and then what the message says, and nothing else but thoughts.
    fn tells(&self, ids: &[TokenId], Said { message, text: said, opening }: &Said<'_>) -> Result<bool, PromptError> {
        let message = self.splice.conversation.message(*message);
        let ids = self.without_end(ids);
        // The last tokens are always looked at.
        if !self.charge(TOKENS_AT_END) || !self.may_tell(ids, said)? || !self.charge(ids.len()) {
            return Ok(false);
        }
        let text = self.splice.decode(ids, false)?;
        let Some(text) = strip_dense(&text, &dense(opening)) else { return Ok(false) };
        let is_plain = !self.has_turn(text);
        if !calls(message).is_empty() {
            return Ok(is_plain && dense(text).contains(said));
        }
        let [_, mark] = self.marks;
        let behind_thoughts = |(thoughts, rest): (&str, &str)| {
            let is_told = !self.has_turn(thoughts) || self.reasons(message, thoughts);
            is_told.then(|| rest.to_owned())
        };
        // Where nobody takes thoughts apart, what opens them may be the prompt's, and no part of the answer.
        let without_opened = text.trim_start().strip_prefix(self.marks[0]).map(str::to_owned);
        let behind = [text.split_once(mark), text.rsplit_once(mark)].into_iter().flatten().filter_map(behind_thoughts);
        let bodies = std::iter::once(text.to_owned()).chain(without_opened).chain(behind);
        // Readers leave out special tokens, and marks of later thoughts.
        let versions = bodies.flat_map(|body| [self.without_special(&body), body]);
        let mut versions = versions.flat_map(|body| [body.replace(mark, ""), body]).map(|body| dense(&body));
        Ok(versions.any(|body| {
            let left = body.strip_prefix(said);
            left.is_some_and(|left| {
                left.is_empty() || (is_plain && !said.is_empty() && left.len() <= LONGEST_STOP_STRING)
            })
        }))
    }

    /// Takes so many ids from those that may still be compared; `false` where none is left.
    fn charge(&self, ids: usize) -> bool {
        self.left.set(self.left.get().and_then(|left| left.checked_sub(ids)));
        self.left.get().is_some()
    }

    /// Whether ids with a turn in them end as a message does that says `said`. It is asked first, since most of them go on to the end
    /// of the conversation.
    fn may_tell(&self, ids: &[TokenId], said: &str) -> Result<bool, PromptError> {
        let turn = ids.iter().position(|id| self.splice.stops.contains(id) || self.marker.first() == Some(id));
        if !self.charge(turn.unwrap_or_default()) {
            return Ok(false);
        }
        if turn.is_none() {
            return Ok(true);
        }
        let last = &ids[ids.len().saturating_sub(TOKENS_AT_END)..];
        let last = dense(&self.splice.decode(last, true)?);
        Ok(said.ends_with(&last) || last.contains(&self.marks[1][self.marks[1].len() - 1..]))
    }

    /// Ids without the tokens that end a turn.
    fn without_end<'i>(&self, ids: &'i [TokenId]) -> &'i [TokenId] {
        let Splice { stops, .. } = self.splice;
        let is_stop = |id: &TokenId| stops.contains(id);
        match ids.split_last() {
            Some((last, before)) if is_stop(last) => before,
            _ => ids.strip_suffix(self.marker).unwrap_or(ids),
        }
    }

    /// Whether a text has what begins or ends a turn.
    fn has_turn(&self, text: &str) -> bool {
        let Splice { seams, stops, .. } = self.splice;
        seams.find(text).any(|seam| stops.contains(&seam.id) || self.marker.contains(&seam.id))
    }

    /// Whether the message tells these thoughts.
    fn reasons(&self, message: &Object, thoughts: &str) -> bool {
        let told = ["reasoning", "reasoning_content"].into_iter().filter_map(|name| message.get(name));
        let thoughts = dense(&self.without_special(thoughts));
        let thoughts = thoughts.strip_prefix(self.marks[0]).unwrap_or(&thoughts);
        told.filter_map(Value::as_str).any(|told| !told.is_empty() && dense(told) == thoughts)
    }

    /// A text without special tokens.
    fn without_special(&self, text: &str) -> String {
        let (mut out, mut start) = (String::new(), 0);
        for seam in self.splice.seams.find(text).filter(|seam| self.splice.tokenizer.is_special(seam.id)) {
            out.push_str(&text[start..seam.start]);
            start = seam.end;
        }
        out.push_str(&text[start..]);
        out
    }
}

/// What follows a text of which only white space is left out, at the start of another one.
fn strip_dense<'t>(text: &'t str, start: &str) -> Option<&'t str> {
    let mut wanted = start.chars().peekable();
    let mut rest = text.chars();
    while let Some(next) = wanted.peek() {
        let character = rest.next()?;
        if character == *next {
            wanted.next();
        } else if !is_blank(character) {
            return None;
        }
    }
    Some(rest.as_str())
}
