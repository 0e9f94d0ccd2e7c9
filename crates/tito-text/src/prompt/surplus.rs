//! What known ids say beyond the messages before the one that they end with: texts that go on, and turns that no message has.
//!
//! The template's own special tokens around a text show where it begins and ends, and tokens that end turns how many there
//! are. A text of an assistant may begin later than what was sampled, since thoughts come first, so that only its end is
//! looked at.

use std::ops::Range;

use super::{
    PromptError,
    comparison::{Comparison, LONGEST_STOP_STRING, Written, decode, encoded, is_blank, shown_texts},
    seams::Seam,
    splice::spoken,
};
use crate::chat::Message;

/// A shorter text of an assistant may stand anywhere, in the name of a role for one.
const SHORTEST: usize = 8;

/// A text of a message.
#[derive(Clone, Copy)]
struct Said<'m> {
    text: &'m str,
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
    shown: &'a str,
    shown_seams: Vec<Seam>,
    seams: Vec<Seam>,
    said: Vec<Said<'a>>,
    /// Where the render has the texts.
    places: Vec<Range<usize>>,
}

/// Whether the ids before the message that they end with, which are the text `shown`, say more than the messages.
pub(super) fn in_history(comparison: &Comparison<'_>, written: Written<'_>, shown: &str) -> Result<bool, PromptError> {
    let Comparison { prompt, render, anchor, .. } = *comparison;
    let said: Vec<Said<'_>> = prompt.messages[..=anchor].iter().flat_map(said_by).collect();
    let seams: Vec<Seam> = written.seams.find(render).collect();
    // Among texts that spell special tokens, those of the template cannot be told.
    let is_plain = said.iter().all(|said| written.seams.find(said.text).next().is_none());
    let Some(places) = places(render, &seams, &said).filter(|_| is_plain) else { return Ok(false) };
    let count = prompt.messages[..anchor].iter().map(|message| said_by(message).len()).sum();
    let shown_seams = written.seams.find(shown).collect();
    History { comparison, written, shown, shown_seams, seams, said, places }.says_more(count)
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
            let begins =
                !self.said[number].is_assistant || self.shown[..found.start].trim_end().ends_with(self.opening(number));
            if begins && known.is_some_and(|known| self.has_more_turns(end..found.start, known..place.start)) {
                return Ok(true);
            }
            (end, known) = (found.end, Some(place.end));
        }
        // Where it is known how many ids were sampled, those before them end where the message begins.
        let tells = self.comparison.known.sampled < self.comparison.known.token_ids.len()
            && self.said.get(count).is_some_and(|said| said.text.len() >= SHORTEST);
        let anchor = self.places.get(count).filter(|_| tells);
        let rest = known.zip(anchor).map(|(known, anchor)| (end..self.shown.len(), known..anchor.start));
        Ok(rest.is_some_and(|(ids, render)| self.has_more_turns(ids, render)))
    }

    /// Where the ids have a text, from a place on.
    fn find(&self, number: usize, from: usize) -> Result<Found, PromptError> {
        if self.said[number].is_assistant { self.find_answer(number, from) } else { self.find_window(number, from) }
    }

    /// A text with the special tokens next to it, or what encoding makes of them.
    fn find_window(&self, number: usize, from: usize) -> Result<Found, PromptError> {
        let (before, window, behind) = self.window(number);
        let find = |window: &str| {
            let start = from + self.shown[from..].find(window)?;
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
        let turn = |rest: &str| self.written.seams.find(rest).next().map_or(rest.len(), |seam| seam.start);
        let ends = |rest: &str| calls || turn(rest) <= LONGEST_STOP_STRING || self.comparison.may_follow(rest, false);
        let mut places = whole_matches(self.shown, from, &self.shown_seams, text);
        if let Some(place) = places.find(|place| ends(&self.shown[place.end..])) {
            return Ok(if text.len() < SHORTEST { Found::Somewhere } else { Found::At(place) });
        }
        // Special tokens within it were left out of the text that the client got.
        let plain = decode(self.comparison.tokenizer, &self.comparison.known.token_ids, true)?;
        Ok(if plain.contains(text) { Found::Somewhere } else { Found::Nowhere })
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
    fn has_more_turns(&self, ids: Range<usize>, render: Range<usize>) -> bool {
        let ends = |text: &str| {
            let seams: Vec<Seam> = self.written.seams.find(text).collect();
            let ends = |seam: &Seam| self.comparison.stops.contains(&seam.id);
            // A turn may end with tokens of its own and the template's.
            let between = |at: usize| text.get(seams[at - 1].end..seams[at].start).unwrap_or_default();
            let goes_on = |at: usize| at > 0 && ends(&seams[at - 1]) && between(at).chars().all(is_blank);
            (0..seams.len()).filter(|&at| ends(&seams[at]) && !goes_on(at)).count()
        };
        let [ids, render] = [self.shown.get(ids), self.comparison.render.get(render)].map(Option::unwrap_or_default);
        ends(ids) > ends(render)
    }
}

/// The texts of a message that say something.
fn said_by(message: &Message) -> Vec<Said<'_>> {
    let is_assistant = message.role.is_assistant();
    let calls = message.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
    let said = |text| Said { text, is_assistant, calls };
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

/// Where a text stands from a place on, but for places that begin or end within a special token.
fn whole_matches<'t>(
    text: &'t str,
    from: usize,
    seams: &'t [Seam],
    wanted: &'t str,
) -> impl Iterator<Item = Range<usize>> + 't {
    let within = |at: usize| {
        let next = seams.partition_point(|seam| seam.end <= at);
        seams.get(next).is_some_and(|seam| seam.start < at)
    };
    let places = text[from..].match_indices(wanted).map(move |(at, found)| from + at..from + at + found.len());
    places.filter(move |place| !within(place.start) && !within(place.end))
}
