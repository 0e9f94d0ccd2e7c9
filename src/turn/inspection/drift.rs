//! Where the text of a sequence, encoded again, has other ids than the sequence.

use std::ops::Range;

use super::texts::Vocabulary;
use crate::TokenId;

/// Ids whose text has other ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// Which of the sequence's ids they are; none where the text has ids that the sequence lacks.
    pub range: Range<usize>,
    /// The ids that their text has.
    pub token_ids: Vec<TokenId>,
}

/// The drift of a whole sequence; `None` where it has no text, or where its text has no ids.
pub(super) fn find(vocabulary: &mut Vocabulary<'_>, ids: &[TokenId]) -> Option<Vec<Drift>> {
    let text = vocabulary.tokenizer.decode(ids, false).ok()?;
    let again = vocabulary.tokenizer.encode(&text, false).ok()?;
    if again == ids {
        return Some(Vec::new());
    }
    let (own, other) = (Edges::of(vocabulary, ids), Edges::of(vocabulary, &again));
    // A tokenizer that changes texts, or what stands at their beginning, leaves nothing to align by.
    let aligned = own.text == other.text;
    Some(if aligned { by_text((ids, &own.ends), (&again, &other.ends)) } else { vec![by_ends(ids, &again)] })
}

/// Where ids end in the text that they have together.
struct Edges {
    text: String,
    /// Twice the offset of each end. Ends within bytes that are no characters are odd, so that none equals that of a
    /// whole character.
    ends: Vec<usize>,
}

impl Edges {
    fn of(vocabulary: &mut Vocabulary<'_>, ids: &[TokenId]) -> Self {
        let (bytes, mut ends) = vocabulary.all(ids);
        let (mut text, mut from, mut next) = (String::new(), 0, 0);
        for chunk in bytes.utf8_chunks() {
            let (valid, invalid) = (chunk.valid().len(), chunk.invalid().len());
            while let Some(end) = ends.get_mut(next).filter(|end| **end <= from + valid) {
                *end = 2 * (text.len() + *end - from);
                next += 1;
            }
            text.push_str(chunk.valid());
            from += valid + invalid;
            while let Some(end) = ends.get_mut(next).filter(|end| **end < from) {
                *end = 2 * text.len() + 1;
                next += 1;
            }
            if invalid > 0 {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        // An end behind all chunks is that of the text.
        ends[next..].fill(2 * text.len());
        Self { text, ends }
    }
}

/// Both sequences have the same text: they are aligned wherever both have an end.
fn by_text((ids, ends): (&[TokenId], &[usize]), (again, again_ends): (&[TokenId], &[usize])) -> Vec<Drift> {
    let (mut found, mut at, mut other) = (Vec::new(), 0, 0);
    while at < ids.len() || other < again.len() {
        let same = at < ids.len() && other < again.len() && ids[at] == again[other] && ends[at] == again_ends[other];
        if same {
            (at, other) = (at + 1, other + 1);
            continue;
        }
        let (start, other_start) = (at, other);
        loop {
            let own_end = if at > start { Some(ends[at - 1]) } else { None };
            let other_end = if other > other_start { Some(again_ends[other - 1]) } else { None };
            let begun = start.checked_sub(1).map_or(0, |before| ends[before]);
            let (own_end, other_end) = (own_end.unwrap_or(begun), other_end.unwrap_or(begun));
            let has_moved = at > start || other > other_start;
            if has_moved && own_end == other_end {
                break;
            }
            match (at < ids.len(), other < again.len()) {
                (true, _) if own_end <= other_end => at += 1,
                (_, true) => other += 1,
                (true, false) => at += 1,
                (false, false) => break,
            }
        }
        found.push(Drift { range: start..at, token_ids: again[other_start..other].to_vec() });
    }
    found
}

/// The texts differ too: all between what both begin with and what both end with.
fn by_ends(ids: &[TokenId], again: &[TokenId]) -> Drift {
    let before = ids.iter().zip(again).take_while(|(own, other)| own == other).count();
    let (own, other) = (&ids[before..], &again[before..]);
    let behind = own.iter().rev().zip(other.iter().rev()).take_while(|(own, other)| own == other).count();
    Drift { range: before..ids.len() - behind, token_ids: other[..other.len() - behind].to_vec() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tokenizer::Tokenizer;

    const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-model/tokenizer.json");

    /// The sequence with what its text has in place of what drifts.
    fn replaced(ids: &[TokenId], drifts: &[Drift]) -> Vec<TokenId> {
        let (mut made, mut from) = (Vec::new(), 0);
        for drift in drifts {
            made.extend_from_slice(&ids[from..drift.range.start]);
            made.extend_from_slice(&drift.token_ids);
            from = drift.range.end;
        }
        [&made, &ids[from..]].concat()
    }

    proptest! {
        /// Random ids are mostly pieces of characters, so that all kinds of ends occur.
        #[test]
        fn what_drifts_is_all_that_differs(ids in proptest::collection::vec(0..326_u32, 0..40)) {
            let tokenizer = Tokenizer::from_file(TINY).unwrap();
            let again = tokenizer.encode(&tokenizer.decode(&ids, false).unwrap(), false).unwrap();
            let drifts = find(&mut Vocabulary::new(&tokenizer), &ids).unwrap();
            prop_assert_eq!(replaced(&ids, &drifts), again);
            prop_assert!(drifts.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
            prop_assert!(drifts.iter().all(|drift| ids[drift.range.clone()] != drift.token_ids));
            let whole = by_ends(&ids, &tokenizer.encode("something else", false).unwrap());
            prop_assert_eq!(replaced(&ids, &[whole]), tokenizer.encode("something else", false).unwrap());
        }
    }

    #[test]
    fn ids_that_the_tokenizer_lacks_leave_drift_unknown() {
        let tokenizer = Tokenizer::from_file(TINY).unwrap();
        assert_eq!(find(&mut Vocabulary::new(&tokenizer), &[5, 9999]), None);
    }
}
