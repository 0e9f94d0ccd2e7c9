//! A text of known ids, with its special tokens, and where in it a client may have stopped telling it.

use super::{
    comparison::{Comparison, LONGEST_STOP_STRING, is_blank},
    seams::Seam,
};

/// A text of known ids. What is asked of a place takes no longer if the text is longer: a hostile text has very many places.
pub(super) struct ShownText<'a> {
    pub(super) text: &'a str,
    seams: Vec<Seam>,
    /// For each seam: if it ends a turn, where the text goes on behind it and the ends that follow it at once.
    after_turn: Vec<Option<usize>>,
    /// What else may begin what a client leaves out: stop strings and added tokens, but for those that [`MARKS`] begin.
    beginnings: Vec<&'a str>,
}

/// What begins a mark.
const MARKS: [char; 2] = ['<', '['];

impl<'a> ShownText<'a> {
    pub(super) fn new(comparison: &Comparison<'a>, text: &'a str) -> Self {
        let seams: Vec<Seam> = comparison.written.iter().flat_map(|written| written.seams.find(text)).collect();
        let stops = comparison.prompt.stop_strings.iter().map(|stop| stop.trim_start());
        let tokens = comparison.tokenizer.added_tokens().iter().map(|token| token.content.as_str());
        let beginnings = stops.chain(tokens).filter(|begin| !begin.is_empty() && !begin.starts_with(MARKS)).collect();
        let mut after_turn: Vec<Option<usize>> = vec![None; seams.len()];
        for (number, seam) in seams.iter().enumerate().rev() {
            if comparison.stops.contains(&seam.id) {
                let end = skip_blank(text, seam.end);
                let next = seams.get(number + 1).filter(|next| next.start == end);
                after_turn[number] = next.and_then(|_| after_turn[number + 1]).or(Some(end));
            }
        }
        Self { text, seams, after_turn, beginnings }
    }

    /// Whether a client may have left out what stands behind a place: white space, half a character, the end of the turn, a stop
    /// string and what was sampled with it, or what a mark begins.
    pub(super) fn may_end_at(&self, place: usize, may_be_stop_string: bool) -> bool {
        let start = skip_blank(self.text, place);
        let number = self.next_seam(start);
        let special = self.seams.get(number).map_or(self.text.len(), |seam| seam.start);
        let is_behind = number < self.seams.len() && special == start;
        let may_be_cut = may_be_stop_string && special - start <= LONGEST_STOP_STRING;
        if !is_behind && !may_be_cut {
            return self.may_begin_omission(start);
        }
        match self.after_turn.get(number) {
            Some(Some(end)) => *end == self.text.len(),
            Some(None) | None => self.may_begin_omission(special),
        }
    }

    /// How many bytes stand between a place and the special token behind it, or the end of the text.
    pub(super) fn bytes_before_seam(&self, place: usize) -> usize {
        self.seams.get(self.next_seam(place)).map_or(self.text.len(), |seam| seam.start) - place
    }

    /// Whether a place is within a special token.
    pub(super) fn is_within_seam(&self, place: usize) -> bool {
        is_within(&self.seams, place)
    }

    /// The places where a text stands from one on, but for those that begin or end within a special token.
    pub(super) fn whole_matches<'t>(
        &'t self,
        from: usize,
        wanted: &'t str,
    ) -> impl Iterator<Item = std::ops::Range<usize>> + 't {
        whole_matches(self.text, from, &self.seams, wanted)
    }

    /// Where a turn ends behind a place, the turns before it not counted; the end of the text where there are not so many.
    pub(super) fn end_of_turn(&self, place: usize, turns: usize) -> usize {
        let seams = self.seams.iter().zip(&self.after_turn).skip(self.next_seam(place));
        let mut ends = seams.filter(|(_, after)| after.is_some()).map(|(seam, _)| seam.end);
        ends.nth(turns).unwrap_or(self.text.len())
    }

    /// The number of the first seam that begins at a place or behind it.
    fn next_seam(&self, place: usize) -> usize {
        self.seams.partition_point(|seam| seam.start < place)
    }

    fn may_begin_omission(&self, place: usize) -> bool {
        let rest = &self.text[place..];
        rest.is_empty() || rest.starts_with(MARKS) || self.beginnings.iter().any(|begin| rest.starts_with(begin))
    }
}

/// Where a text goes on behind what says nothing.
fn skip_blank(text: &str, from: usize) -> usize {
    text.len() - text[from..].trim_start_matches(is_blank).len()
}

/// Where a text stands from a place on, but for places that begin or end within a special token.
pub(super) fn whole_matches<'t>(
    text: &'t str,
    from: usize,
    seams: &'t [Seam],
    wanted: &'t str,
) -> impl Iterator<Item = std::ops::Range<usize>> + 't {
    let places = text[from..].match_indices(wanted).map(move |(at, found)| from + at..from + at + found.len());
    places.filter(move |place| !is_within(seams, place.start) && !is_within(seams, place.end))
}

/// Whether a place is within a special token, of which these are all.
fn is_within(seams: &[Seam], place: usize) -> bool {
    let next = seams.partition_point(|seam| seam.end <= place);
    seams.get(next).is_some_and(|seam| seam.start < place)
}
