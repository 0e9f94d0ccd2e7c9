//! The recent texts of all sequences, and where tokens were in them.
//!
//! A text is what was sampled for a sequence, after the last tokens of its prompt. Places whose last tokens have the same
//! hash form a chain, the latest one first: there is one chain for [`KEYS`]`[0]` tokens, which finds places that have much
//! in common, and one for `KEYS[1]`. A token is found from the moment in which it is sampled, so sequences that run
//! together find each other's. A suffix tree would count all occurrences at several times the memory; the latest ones
//! say as much.
//!
//! Memory has a bound: 20 bytes for each of [`TOKENS`] tokens, 8 MiB for the heads of chains, and about 100 bytes for a
//! text, of which there are at most `TOKENS / LEAST_ROOM`; less than 56 MiB together. The text that began first goes first,
//! and the chains that lead through it end there.
//!
//! A text is found only from its own [`Room`].

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash, Hasher},
};

use super::occurrence::{Occurrence, agreeing};
use crate::{TokenId, engine::native::kv_cache::BlockHash};

/// Tokens that there is memory for, over all texts.
const TOKENS: usize = 2 << 20;
/// Tokens that there is memory for in any text.
const LEAST_ROOM: usize = 64;
/// The part of its length by which a text that has no memory left grows.
const GROWTH: usize = 4;
/// Heads of chains of each kind. Chains whose heads fall together are one.
const HEADS: usize = 1 << 19;
/// How many tokens the places of a chain have in common; the first kind that finds something is what counts.
const KEYS: [usize; 2] = [6, 2];
/// The most places of a chain that are looked at.
const LONGEST_WALK: usize = 64;
/// The bits of a [`Place`] that are for the place in the text.
const END_BITS: u32 = 24;

/// Texts of different rooms do not find each other: these are those of different salts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Room(BlockHash);

/// The text of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordedText {
    room: Room,
    /// Texts are numbered from 1.
    number: u64,
}

/// A place in a text: the text's number, and how many tokens it has up to there. 0 is no place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place(u64);

impl Place {
    fn new(text: u64, end: usize) -> Self {
        Self(text << END_BITS | end as u64)
    }

    fn text(self) -> u64 {
        self.0 >> END_BITS
    }

    fn end(self) -> usize {
        (self.0 & ((1 << END_BITS) - 1)) as usize
    }
}

#[derive(Debug)]
struct Text {
    room: Room,
    token_ids: Vec<TokenId>,
    /// For each token and each kind of chain, the place before it in the chain.
    earlier: Vec<[Place; KEYS.len()]>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct RecentTexts {
    most_texts: usize,
    most_tokens: usize,
    texts: VecDeque<Text>,
    /// The number of the first text that is there.
    first: u64,
    /// Tokens that memory was taken for.
    held: usize,
    heads: [Vec<Place>; KEYS.len()],
}

impl RecentTexts {
    /// Room for at most so many texts, at least 1.
    pub(super) fn new(most_texts: usize) -> Self {
        Self::bounded(most_texts, TOKENS)
    }

    fn bounded(most_texts: usize, most_tokens: usize) -> Self {
        let heads = [(); KEYS.len()].map(|()| vec![Place::default(); HEADS]);
        Self { most_texts, most_tokens, texts: VecDeque::new(), first: 1, held: 0, heads }
    }

    /// Begins the text of a sequence with this salt.
    pub(super) fn begin(&mut self, salt: Option<&str>, token_ids: &[TokenId]) -> RecordedText {
        let room = Room(BlockHash::root(0, None, salt));
        let text = RecordedText { room, number: self.first + self.texts.len() as u64 };
        self.texts.push_back(Text { room, token_ids: Vec::new(), earlier: Vec::new() });
        for token in token_ids {
            self.push(text, *token);
        }
        if self.texts.len() > self.most_texts {
            self.evict();
        }
        text
    }

    /// Adds a token to a text, unless the text is gone.
    pub(super) fn push(&mut self, RecordedText { room, number }: RecordedText, token: TokenId) {
        let Some(text) =
            number.checked_sub(self.first).and_then(|place| self.texts.get_mut(usize::try_from(place).ok()?))
        else {
            return;
        };
        let end = text.token_ids.len() + 1;
        if end >= 1 << END_BITS {
            return;
        }
        if end > text.token_ids.capacity() {
            let before = text.token_ids.capacity();
            let growth = (before / GROWTH).max(LEAST_ROOM);
            text.token_ids.reserve_exact(growth);
            text.earlier.reserve_exact(growth);
            self.held += text.token_ids.capacity() - before;
        }
        text.token_ids.push(token);
        let mut earlier = [Place::default(); KEYS.len()];
        for (kind, length) in KEYS.into_iter().enumerate().filter(|(_, length)| *length <= end) {
            let head = &mut self.heads[kind][head(room, &text.token_ids[end - length..])];
            earlier[kind] = std::mem::replace(head, Place::new(number, end));
        }
        text.earlier.push(earlier);
        while self.held > self.most_tokens {
            self.evict();
        }
    }

    /// Where at least `shortest` of the last tokens of a sequence with this text are in the texts of others, as far as
    /// `last` reaches back; the latest ones, by the longest key that finds any.
    pub(super) fn occurrences(&self, own: RecordedText, last: &[TokenId], shortest: usize) -> Vec<Occurrence<'_>> {
        for (kind, length) in KEYS.into_iter().enumerate().filter(|(_, length)| *length <= last.len()) {
            let mut place = self.heads[kind][head(own.room, &last[last.len() - length..])];
            let mut found = Vec::new();
            for _ in 0..LONGEST_WALK {
                let Some(text) = self.text(place.text()) else { break };
                let (before, follows) = text.token_ids.split_at(place.end());
                if text.room == own.room && place.text() != own.number && !follows.is_empty() {
                    let agreeing = agreeing(before, last);
                    // Others share the chain by chance.
                    if agreeing >= length.max(shortest) {
                        found.push(Occurrence { agreeing, follows, repeats: false });
                    }
                }
                place = text.earlier[place.end() - 1][kind];
            }
            if !found.is_empty() || length <= shortest {
                return found;
            }
        }
        Vec::new()
    }

    fn text(&self, number: u64) -> Option<&Text> {
        self.texts.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Forgets the text that began first.
    fn evict(&mut self) {
        if let Some(text) = self.texts.pop_front() {
            self.held -= text.token_ids.capacity();
            self.first += 1;
        }
    }
}

/// Where the chain of these tokens begins.
#[expect(clippy::cast_possible_truncation, reason = "some bits of a hash are as good as all")]
fn head(room: Room, token_ids: &[TokenId]) -> usize {
    let mut hasher = DefaultHasher::new();
    (room, token_ids).hash(&mut hasher);
    hasher.finish() as usize % HEADS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What follows the last of `token_ids` in texts of this salt, for a sequence that has no text among them.
    fn follows(texts: &mut RecentTexts, salt: Option<&str>, token_ids: &[TokenId]) -> Vec<(usize, Vec<TokenId>)> {
        let nobody = RecordedText { room: Room(BlockHash::root(0, None, salt)), number: 0 };
        texts.occurrences(nobody, token_ids, 1).iter().map(|found| (found.agreeing, found.follows.to_vec())).collect()
    }

    #[test]
    fn the_latest_place_comes_first_and_a_long_key_goes_before_a_short_one() {
        let mut texts = RecentTexts::new(10);
        texts.begin(None, &[1, 2, 3, 4, 5, 6, 7, 8]);
        texts.begin(None, &[0, 5, 6, 9]);
        assert_eq!(follows(&mut texts, None, &[8, 5, 6]), [(2, vec![9]), (2, vec![7, 8])]);
        assert_eq!(follows(&mut texts, None, &[0, 1, 2, 3, 4, 5, 6]), [(6, vec![7, 8])]);
        assert!(follows(&mut texts, None, &[6]).is_empty());
        assert!(follows(&mut texts, None, &[7, 8]).is_empty(), "nothing followed");
        let own = texts.begin(None, &[1, 2, 3, 4, 5, 6, 7]);
        let lengths = [2, 3, 6, 7, 8].map(|shortest| texts.occurrences(own, &[1, 2, 3, 4, 5, 6, 7], shortest).len());
        assert_eq!(lengths, [1, 1, 1, 1, 0]);
        let lengths = [2, 3].map(|shortest| texts.occurrences(own, &[0, 5, 6], shortest).len());
        assert_eq!(lengths, [2, 1]);
    }

    #[test]
    fn a_token_is_found_once_it_is_sampled_and_not_by_its_own_text() {
        let mut texts = RecentTexts::new(10);
        let own = texts.begin(None, &[1, 2]);
        let other = texts.begin(None, &[1, 2]);
        assert!(texts.occurrences(other, &[1, 2], 2).is_empty());
        texts.push(own, 3);
        assert_eq!(texts.occurrences(other, &[1, 2], 2).len(), 1);
        texts.push(own, 4);
        let found = texts.occurrences(other, &[1, 2], 2);
        assert_eq!(found, [Occurrence { agreeing: 2, follows: &[3, 4], repeats: false }]);
        assert!(texts.occurrences(own, &[1, 2], 2).is_empty());
    }

    #[test]
    fn texts_of_one_salt_are_found_from_no_other() {
        let mut texts = RecentTexts::new(10);
        let salts = [None, Some(""), Some("a"), Some("b")];
        for (salt, token) in salts.into_iter().zip(10..) {
            texts.begin(salt, &[1, 2, 3, 4, 5, 6, token]);
        }
        for (salt, token) in salts.into_iter().zip(10..) {
            assert_eq!(follows(&mut texts, salt, &[1, 2, 3, 4, 5, 6]), [(6, vec![token])]);
            assert_eq!(follows(&mut texts, salt, &[5, 6]), [(2, vec![token])]);
        }
        assert!(follows(&mut texts, Some("c"), &[5, 6]).is_empty());
    }

    #[test]
    fn the_text_that_began_first_goes_first_and_takes_no_more_tokens() {
        let mut texts = RecentTexts::new(2);
        let first = texts.begin(None, &[1, 2, 3]);
        texts.begin(None, &[4, 5, 6]);
        texts.begin(None, &[7, 8, 9]);
        texts.push(first, 9);
        assert_eq!(texts.texts.len(), 2);
        assert!(follows(&mut texts, None, &[1, 2]).is_empty());
        assert!(follows(&mut texts, None, &[2, 3]).is_empty());
        assert_eq!(follows(&mut texts, None, &[4, 5]), [(2, vec![6])]);
        assert_eq!(follows(&mut texts, None, &[7, 8]), [(2, vec![9])]);
    }

    #[test]
    fn memory_has_a_bound_whatever_is_recorded() {
        let most_tokens = 1_000;
        let mut texts = RecentTexts::bounded(usize::MAX, most_tokens);
        let check = |texts: &RecentTexts| {
            let held = texts.texts.iter().map(|text| text.token_ids.capacity());
            assert_eq!(held.sum::<usize>(), texts.held);
            assert!(texts.held <= most_tokens && texts.texts.len() <= most_tokens / LEAST_ROOM);
            assert!(
                texts.texts.iter().all(|text| text.earlier.capacity() <= text.token_ids.capacity().max(LEAST_ROOM))
            );
        };
        for number in 0..100 {
            let text = texts.begin(None, &[number]);
            (0..number * 3).for_each(|token| texts.push(text, token % 7));
            check(&texts);
        }
        assert!(!texts.texts.is_empty());
        // A text that is longer than all memory goes too.
        let text = texts.begin(None, &[]);
        (0..3_000).for_each(|token| texts.push(text, token));
        check(&texts);
        assert!(texts.texts.is_empty());
        assert_eq!(TOKENS * (4 + 16) + 2 * HEADS * 8, 48 << 20);
    }

    #[test]
    fn a_walk_has_a_bound() {
        let mut texts = RecentTexts::new(1_000);
        for _ in 0..200 {
            texts.begin(None, &[1, 2, 3]);
        }
        assert_eq!(follows(&mut texts, None, &[1, 2]).len(), LONGEST_WALK);
    }
}
