//! Text that waits to be read: it is looked at, and given out, at a cost that grows with its length and no faster.
//!
//! A text may be one mark after another. What moved or searched all of the rest for each of them would take the square of
//! the text's length.

use std::ops::Deref;

use super::marker;

/// What is left of a text that comes in pieces. It is read from its start on; places are counted from there.
#[derive(Debug, Default)]
pub(super) struct Unread {
    text: String,
    /// What stands before was read.
    from: usize,
    /// What is known of the markers that were looked for.
    places: Vec<(&'static str, Place)>,
}

/// Where a marker stands in the text.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// The next one.
    At(usize),
    /// None begins before this.
    From(usize),
}

impl Unread {
    /// A whole text.
    pub(super) fn whole(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    /// Adds what comes next.
    pub(super) fn push_str(&mut self, text: &str) {
        // What is left is moved only where no less was read since it was moved last.
        if self.from > self.text.len() / 2 {
            self.text.drain(..self.from);
            for (_, place) in &mut self.places {
                *place = match *place {
                    Place::At(at) if at >= self.from => Place::At(at - self.from),
                    Place::At(at) | Place::From(at) => Place::From(at.saturating_sub(self.from)),
                };
            }
            self.from = 0;
        }
        self.text.push_str(text);
    }

    /// Passes over what stands before `end`.
    pub(super) fn skip(&mut self, end: usize) {
        self.from += end;
    }

    /// Takes what stands before `end`.
    pub(super) fn take(&mut self, end: usize) -> String {
        let taken = self[..end].to_owned();
        self.skip(end);
        taken
    }

    /// Takes all of it.
    pub(super) fn take_all(&mut self) -> String {
        let all = self.take(self.len());
        *self = Self::default();
        all
    }

    /// Where the first of `markers` stands, and which one it is; of two that start together, the longer one. No part of the text
    /// is searched twice for a marker.
    pub(super) fn first(&mut self, markers: &[&'static str]) -> Option<(usize, &'static str)> {
        let found = markers.iter().filter_map(|marker| Some((self.next(marker)?, *marker)));
        let (at, marker) = found.min_by_key(|(at, marker)| (*at, usize::MAX - marker.len()))?;
        Some((at - self.from, marker))
    }

    /// Where a marker stands next in all of the text.
    fn next(&mut self, marker: &'static str) -> Option<usize> {
        let known = self.places.iter().position(|(known, _)| *known == marker).unwrap_or_else(|| {
            self.places.push((marker, Place::From(self.from)));
            self.places.len() - 1
        });
        let begin = match self.places[known].1 {
            Place::At(at) if at >= self.from => return Some(at),
            Place::From(at) => at.max(self.from),
            Place::At(_) => self.from,
        };
        let found = self.text[begin..].find(marker).map(|at| begin + at);
        let none_before = || {
            let at = (self.text.len() + 1).saturating_sub(marker.len());
            self.text.floor_char_boundary(at).max(begin)
        };
        self.places[known].1 = found.map_or_else(|| Place::From(none_before()), Place::At);
        found
    }
}

impl Deref for Unread {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text[self.from..]
    }
}

/// Text that goes out up to the white space at its end, which waits for what follows.
#[derive(Debug, Default)]
pub(super) struct Spaced {
    text: String,
    /// Up to the last character that is no white space.
    spoken: usize,
}

impl Spaced {
    /// Adds what comes next. Only that is looked at.
    pub(super) fn push_str(&mut self, text: &str) {
        let spoken = marker::trim_end(text).len();
        if spoken > 0 {
            self.spoken = self.text.len() + spoken;
        }
        self.text.push_str(text);
    }

    /// Whether there is nothing but white space.
    pub(super) fn is_blank(&self) -> bool {
        self.spoken == 0
    }

    /// Takes it without the white space at its end, which stays.
    pub(super) fn take_spoken(&mut self) -> String {
        if self.spoken == 0 {
            return String::new();
        }
        let space = self.text.split_off(std::mem::take(&mut self.spoken));
        std::mem::replace(&mut self.text, space)
    }

    /// Takes all of it.
    pub(super) fn take_all(&mut self) -> String {
        std::mem::take(self).text
    }

    /// Forgets all of it.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MARKERS: &[&str] = &["<a>", "<a>b", "é<", "x"];

    #[test]
    fn the_earliest_marker_is_found() {
        let first = |text: &str, markers: &[&'static str]| Unread::whole(text).first(markers);
        assert_eq!(first("a</t><t>", &["<t>", "</t>"]), Some((1, "</t>")));
        assert_eq!(first("a<t>b", &["<t>", "<t>b"]), Some((1, "<t>b")));
        assert_eq!(first("a<t", &["<t>"]), None);
    }

    proptest! {
        #[test]
        fn places_are_those_of_the_text_itself(
            pieces in prop::collection::vec("[<a>béx]{0,6}", 0..12),
            steps in prop::collection::vec((0..5_usize, 1..5_usize), 12),
        ) {
            let (mut unread, mut plain) = (Unread::default(), String::new());
            for (piece, (skip, markers)) in pieces.iter().zip(steps) {
                unread.push_str(piece);
                plain.push_str(piece);
                let markers = &MARKERS[..markers.min(MARKERS.len())];
                for _ in 0..skip {
                    let found = unread.first(markers);
                    prop_assert_eq!(found, Unread::whole(&plain).first(markers));
                    let end = found.map_or(0, |(at, marker)| at + marker.len());
                    let rest = plain.split_off(end);
                    prop_assert_eq!(unread.take(end), std::mem::replace(&mut plain, rest));
                    prop_assert_eq!(&*unread, plain.as_str());
                }
            }
            prop_assert_eq!(unread.take_all(), plain);
            prop_assert!(unread.is_empty());
        }

        #[test]
        fn the_white_space_at_the_end_waits(pieces in prop::collection::vec("[a \n\u{1c}é]{0,4}", 0..12)) {
            let (mut spaced, mut plain) = (Spaced::default(), String::new());
            for piece in pieces {
                spaced.push_str(&piece);
                plain.push_str(&piece);
                prop_assert_eq!(spaced.is_blank(), marker::is_blank(&plain));
                let rest = plain.split_off(marker::trim_end(&plain).len());
                prop_assert_eq!(spaced.take_spoken(), std::mem::replace(&mut plain, rest));
            }
            prop_assert_eq!(spaced.take_all(), plain);
        }
    }

    #[test]
    fn a_text_that_is_read_mark_by_mark_is_not_moved_for_each() {
        let mut unread = Unread::whole(&"<a>".repeat(100));
        let allocated = unread.text.as_ptr();
        while let Some((_, mark)) = unread.first(MARKERS) {
            unread.take(mark.len());
        }
        unread.push_str("");
        assert_eq!((unread.text.as_ptr(), unread.len(), unread.from), (allocated, 0, 0));
    }
}
