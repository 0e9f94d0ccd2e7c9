//! What known ids say beyond the messages before the one that they end with: texts that go on, turns that no message has, and what
//! stands between texts.
//!
//! The template's own special tokens around a text show where it begins and ends, and tokens that end turns how many there
//! are. A text of an assistant may begin later than what was sampled, since thoughts come first, so that only its end is
//! looked at. What stands between two texts is in `between`.

use std::{cell::OnceCell, ops::Range};

use super::{
    Edits, PromptError,
    between::Between,
    comparison::{Comparison, LONGEST_STOP_STRING, Written, decode, dense, encoded, shown_texts},
    seams::Seam,
    shown_text::{ShownText, whole_matches},
    splice::spoken,
};
use crate::chat::Message;

/// A shorter text of an assistant may stand anywhere, in the name of a role for one.
const SHORTEST: usize = 8;

/// So many bytes before a message tell whether it begins there.
const BYTES_BEFORE: usize = 24;

/// An answer is read up to the end of so many turns behind the one at which it is looked for: its own, and one that the text
/// before it ends with.
const TURNS_NEARBY: usize = 2;

/// A text of a message.
#[derive(Clone, Copy)]
struct Said<'m> {
    text: &'m str,
    /// The index of the message.
    message: usize,
    is_assistant: bool,
    /// Whether calls follow it.
    calls: bool,
}

/// Where a text was found.
enum Found {
    At(Range<usize>),
    /// It is there, but short, or with special tokens within it that the text is without.
    Somewhere,
    Nowhere,
}

/// What is compared, with the places of its special tokens.
struct History<'a> {
    comparison: &'a Comparison<'a>,
    written: Written<'a>,
    /// The text of the ids.
    shown: ShownText<'a>,
    /// Their text without special tokens, and without marks that end thoughts either: readers leave out those of later thoughts.
    plain: OnceCell<[String; 2]>,
    /// Special tokens of the render.
    seams: Vec<Seam>,
    said: Vec<Said<'a>>,
    /// Where the render has the texts.
    places: Vec<Range<usize>>,
}

/// Where the ids before the message that they end with, which are the text `shown`, say something else than the messages.
pub(super) fn find(comparison: &Comparison<'_>, written: Written<'_>, shown: &str) -> Result<Edits, PromptError> {
    let Comparison { prompt, render, anchor, .. } = *comparison;
    let said: Vec<Said<'_>> = prompt.messages[..=anchor].iter().enumerate().flat_map(said_by).collect();
    let count = said.partition_point(|said| said.message < anchor);
    let seams: Vec<Seam> = written.seams.find(render).collect();
    // Among texts that spell special tokens, those of the template cannot be told.
    let is_plain = said.iter().all(|said| written.seams.find(said.text).next().is_none());
    let Some(places) = places(render, &seams, &said).filter(|_| is_plain) else { return Ok(Edits::default()) };
    let shown = ShownText::new(comparison, shown);
    let history = History { comparison, written, shown, plain: OnceCell::new(), seams, said, places };
    Ok(Edits { history: history.says_more(count)?, context: history.begins_otherwise(count)?, message: false })
}

impl History<'_> {
    /// Whether the ids say more than the first `count` texts.
    fn says_more(&self, count: usize) -> Result<bool, PromptError> {
        // Where the last text that was found ends, in the ids and in the render; `None` after one whose place is not known.
        let (mut end, mut known) = (0, Some(0));
        for number in 0..count {
            let found = match self.find(number, end)? {
                Found::At(place) => place,
                Found::Nowhere => return Ok(true),
                Found::Somewhere => {
                    known = None;
                    continue;
                }
            };
            let place = &self.places[number];
            // An answer that goes on after an end of its turn does not begin as the template begins one.
            let opening = self.opening(number);
            let begins = |before: &str| !self.said[number].is_assistant || before.trim_end().ends_with(opening);
            if let Some(known) = known {
                let between = self.between(end..found.start, known..place.start);
                if begins(between.ids) && self.has_more_turns(between.ids, between.render) {
                    return Ok(true);
                }
                // Thoughts may stand between the opening and the text.
                let [ids, render] = [between.ids, between.render].map(|text| self.comparison.without_thoughts(text));
                let differs = || between.differs(self.unsaid_before(number), self.is_after_answer(number));
                if begins(&ids) && (self.has_more_turns(&ids, &render) || differs()?) {
                    return Ok(true);
                }
            }
            (end, known) = (found.end, Some(place.end));
        }
        // Where it is known how many ids were sampled, those before them end where the message begins.
        let Some(known) = known.filter(|_| self.comparison.known.sampled < self.comparison.known.token_ids.len())
        else {
            return Ok(false);
        };
        let anchor = self.anchor_start(count, known);
        let between = self.between(end..self.shown.text.len(), known..anchor.unwrap_or(self.comparison.render.len()));
        let is_long = anchor.is_some() && self.said.get(count).is_some_and(|said| said.text.len() >= SHORTEST);
        let more = match self.comparison.end_of_message()?.filter(|end| *end >= known) {
            _ if is_long => self.has_more_turns(between.ids, between.render),
            // No text of the message, which ends there, has special tokens.
            Some(end) => self.has_more_turns(between.ids, &self.comparison.render[known..end]),
            None => false,
        };
        Ok(more || between.differs(self.unsaid_before(count), self.is_after_answer(count))?)
    }

    /// Where the render has the message that the ids end with: there it has the same before it as the ids, as its words may stand
    /// elsewhere too.
    fn anchor_start(&self, count: usize, from: usize) -> Option<usize> {
        let before = |text: &str| {
            let start = text.floor_char_boundary(text.len().saturating_sub(BYTES_BEFORE));
            dense(&self.comparison.without_thoughts(&text[start..]))
        };
        let shown = before(self.shown.text);
        let text = self.said.get(count)?.text;
        let mut places = whole_matches(self.comparison.render, from, &self.seams, text).map(|place| place.start);
        places.find(|start| {
            let render = before(&self.comparison.render[..*start]);
            shown.ends_with(&render) || render.ends_with(&shown)
        })
    }

    /// Whether the ids begin otherwise than the render, before the first text that is not the system's: tools stand there.
    fn begins_otherwise(&self, count: usize) -> Result<bool, PromptError> {
        let messages = &self.comparison.prompt.messages;
        let first = messages.iter().position(|message| !message.role.instructs());
        let first = self.said[..count].iter().position(|said| Some(said.message) == first && !said.is_assistant);
        let Some(first) = first else { return Ok(false) };
        match self.find(first, 0)? {
            Found::At(place) => Ok(self.between(0..place.start, 0..self.places[first].start).has_other_words()),
            Found::Somewhere | Found::Nowhere => Ok(false),
        }
    }

    /// The same part of a conversation, in the ids and in the render.
    fn between(&self, ids: Range<usize>, render: Range<usize>) -> Between<'_> {
        let Self { comparison, written, .. } = *self;
        let [ids, render] = [self.shown.text.get(ids), comparison.render.get(render)].map(Option::unwrap_or_default);
        Between { comparison, written, ids, render }
    }

    /// Whether the text before one is an answer's, so that the end of that answer follows it.
    fn is_after_answer(&self, number: usize) -> bool {
        number.checked_sub(1).is_some_and(|before| self.said[before].is_assistant)
    }

    /// The messages, or their calls, that stand between a text and the one before it.
    fn unsaid_before(&self, number: usize) -> &[Message] {
        let messages = &self.comparison.prompt.messages;
        let end = self.said.get(number).map_or(self.comparison.anchor, |said| said.message);
        let start = match number.checked_sub(1).map(|before| self.said[before]) {
            // Nothing is known of what stands before the first text but the template's own words.
            None => end,
            Some(Said { message, calls: true, .. }) => message,
            Some(Said { message, .. }) => message + 1,
        };
        messages.get(start..end).unwrap_or_default()
    }

    /// Where the ids have a text, from a place on.
    fn find(&self, number: usize, from: usize) -> Result<Found, PromptError> {
        if self.said[number].is_assistant { self.find_answer(number, from) } else { self.find_window(number, from) }
    }

    /// A text with the special tokens next to it, or what encoding makes of them.
    fn find_window(&self, number: usize, from: usize) -> Result<Found, PromptError> {
        let (before, window, behind) = self.window(number);
        let find = |window: &str| {
            let start = from + self.shown.text[from..].find(window)?;
            Some(start + before..start + window.len() - behind)
        };
        let found = match find(window) {
            None => find(&encoded(self.comparison.tokenizer, window)?),
            found => found,
        };
        Ok(found.map_or(Found::Nowhere, Found::At))
    }

    /// A text of an assistant, where it ends there.
    fn find_answer(&self, number: usize, from: usize) -> Result<Found, PromptError> {
        let Said { text, calls, .. } = self.said[number];
        let shown = &self.shown;
        let ends = |place: usize| {
            calls || shown.bytes_before_seam(place) <= LONGEST_STOP_STRING || shown.may_end_at(place, false)
        };
        if let Some(place) = shown.whole_matches(from, text).find(|place| ends(place.end)) {
            return Ok(if text.len() < SHORTEST { Found::Somewhere } else { Found::At(place) });
        }
        let mut places = shown.text[from..].match_indices(text).map(|(at, _)| from + at).peekable();
        let is_there = if places.peek().is_some() {
            // A stop string may have cut it within the text of a special token. Otherwise the ids go on behind it.
            places.any(|at| !shown.is_within_seam(at) && shown.is_within_seam(at + text.len()))
        } else {
            // Special tokens within it were left out of the text that the client got, and so were calls and marks of thoughts.
            self.plain()?.iter().any(|plain| plain.contains(text)) || self.says_beside_calls(from, text)
        };
        Ok(if is_there { Found::Somewhere } else { Found::Nowhere })
    }

    /// The text of the ids without special tokens, and without marks that end thoughts either.
    fn plain(&self) -> Result<&[String; 2], PromptError> {
        if let Some(plain) = self.plain.get() {
            return Ok(plain);
        }
        let plain = decode(self.comparison.tokenizer, &self.comparison.known.token_ids, true)?;
        let [_, end] = self.comparison.thought_marks();
        Ok(self.plain.get_or_init(|| [plain.replace(end, ""), plain]))
    }

    /// Whether the ids have a text from a place on, but for calls and marks of thoughts within it. It is looked for in the turns at
    /// that place first, as all that follows takes the longer the more there is.
    fn says_beside_calls(&self, from: usize, text: &str) -> bool {
        let end = self.shown.end_of_turn(from, TURNS_NEARBY);
        let says = |end: usize| self.between(from..end, 0..0).says_beside_calls(text);
        says(end) || (end < self.shown.text.len() && says(self.shown.text.len()))
    }

    /// A text of the render with the special tokens next to it, as far as no other text stands between, and how many bytes of
    /// that stand before the text and behind it.
    fn window(&self, number: usize) -> (usize, &str, usize) {
        let Range { start, end } = self.places[number];
        let earliest = number.checked_sub(1).map_or(0, |before| self.places[before].end);
        let latest = self.places.get(number + 1).map_or(self.comparison.render.len(), |next| next.start);
        let before = self.seams.iter().rev().find(|seam| seam.end <= start).filter(|seam| seam.start >= earliest);
        let behind = self.seams.iter().find(|seam| seam.start >= end).filter(|seam| seam.end <= latest);
        let window = before.map_or(start, |seam| seam.start)..behind.map_or(end, |seam| seam.end);
        (start - window.start, &self.comparison.render[window.clone()], window.end - end)
    }

    /// What the template writes between the last special token and a text.
    fn opening(&self, number: usize) -> &str {
        let (before, window, _) = self.window(number);
        window[..before].trim_end()
    }

    /// Whether more turns end in a part of the ids' text than in the same part of the render.
    fn has_more_turns(&self, ids: &str, render: &str) -> bool {
        self.turns(ids, self.opens_turns(render)) > self.turns(render, false)
    }

    /// Whether the template begins each turn with a special token, as far as a part of the render shows it.
    fn opens_turns(&self, render: &str) -> bool {
        self.written.seams.find(render).any(|seam| !self.comparison.stops.contains(&seam.id))
    }

    /// How many turns end in a text. A turn may end with tokens of its own and the template's, and have more behind an end where ends
    /// are ignored: a turn that follows has a word, be it the name of its role. `are_opened` tells a turn from what was sampled
    /// behind an end up to a stop string.
    fn turns(&self, text: &str, are_opened: bool) -> usize {
        let has_word = |text: &str| text.contains(char::is_alphanumeric);
        let (mut turns, mut has_begun, mut start, mut was_end) = (0, true, 0, false);
        for seam in self.written.seams.find(text) {
            let is_end = self.comparison.stops.contains(&seam.id);
            let before = &text[start..seam.start];
            let is_rest = are_opened && was_end && is_end && before.len() <= LONGEST_STOP_STRING;
            has_begun |= has_word(before) && !is_rest;
            start = seam.end;
            was_end = is_end;
            if is_end && std::mem::take(&mut has_begun) {
                turns += 1;
            }
        }
        turns
    }
}

/// The texts of a message that say something.
fn said_by((number, message): (usize, &Message)) -> Vec<Said<'_>> {
    let is_assistant = message.role.is_assistant();
    let calls = message.makes_calls();
    let said = |text| Said { text, message: number, is_assistant, calls };
    let texts: Vec<&str> =
        if is_assistant { message.content.texts().map(spoken).collect() } else { shown_texts(message).collect() };
    texts.into_iter().map(str::trim).filter(|text| !text.is_empty()).map(said).collect()
}

/// Where the texts stand in the render, one after the other; `None` where the template does not show all of them so.
fn places(render: &str, seams: &[Seam], said: &[Said<'_>]) -> Option<Vec<Range<usize>>> {
    let mut at = 0;
    let places = said.iter().map(|said| {
        let place = whole_matches(render, at, seams, said.text).next()?;
        at = place.end;
        Some(place)
    });
    places.collect()
}
