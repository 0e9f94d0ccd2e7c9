//! Drafts by counts: what most often followed the last tokens, in the sequence's own text and in recent ones of others.

use super::{
    ngram::WINDOW,
    occurrence::{Occurrence, agreeing},
};
use crate::TokenId;

/// The fewest tokens whose earlier place counts: one token alone says little.
const SHORTEST: usize = 2;
/// The most places in the sequence's own text that count.
const MOST_PLACES: usize = 64;
/// The most of them that are looked at.
const MOST_LOOKED_AT: usize = 1_024;

/// Drafts by suffix decoding, with the settings of vLLM's `SpeculativeConfig`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SuffixDecoding {
    /// The most tokens of a draft, at least 1.
    pub num_speculative_tokens: usize,
    /// The most tokens that a draft and what it follows from have together, at least 1.
    pub max_tree_depth: usize,
    /// The most texts of sequences that are kept; 0 for none, so that drafts come from a sequence's own text alone.
    pub max_cached_requests: usize,
    /// How many tokens a draft may have for each one that it follows from, at least 0.
    pub max_spec_factor: f64,
    /// How probable a draft must be at the least, by counts alone, from 0 to 1.
    pub min_token_prob: f64,
    /// See [`NgramLookup::timed`](super::NgramLookup::timed).
    pub timed: bool,
}

/// What a step has for a draft.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    /// The most tokens.
    pub(super) tokens: usize,
    /// How probable a draft must be to be worth its rows.
    pub(super) probability: f64,
    /// The fewest tokens whose earlier place can make a draft as probable.
    pub(super) shortest: usize,
}

/// A draft, and how many of its tokens are expected to be right.
#[derive(Debug, Default)]
struct Candidate {
    token_ids: Vec<TokenId>,
    expected: f64,
}

impl SuffixDecoding {
    /// The most of the last tokens that are looked up.
    pub(super) fn longest_lookup(self) -> usize {
        self.max_tree_depth.saturating_sub(1)
    }

    /// The most texts of other sequences that are of use.
    pub(super) fn most_texts(self) -> usize {
        if self.longest_lookup() < SHORTEST { 0 } else { self.max_cached_requests }
    }

    /// What a step has for a draft of so many tokens that must be as probable; `None` if it has nothing: no draft is.
    ///
    /// So a full step does not even look for drafts.
    pub(super) fn allowance(self, tokens: usize, probability: f64) -> Option<Allowance> {
        let shortest = (SHORTEST..=self.longest_lookup()).find(|length| likelihood(*length, 0) >= probability)?;
        Some(Allowance { tokens, probability, shortest })
    }

    /// Tokens that may follow `token_ids`, of which `elsewhere` says where their end is in other texts.
    ///
    /// Each number of last tokens has a draft of its own: many of them occur seldom and tell much. The draft with the most
    /// tokens that are expected to be right is taken.
    pub(super) fn draft(
        self,
        token_ids: &[TokenId],
        elsewhere: Vec<Occurrence<'_>>,
        allowance: Allowance,
    ) -> Vec<TokenId> {
        let mut places = self.own_places(token_ids, allowance.shortest);
        places.extend(elsewhere);
        places.sort_by_key(|place| std::cmp::Reverse(place.agreeing));
        let longest = places.first().map_or(0, |place| place.agreeing);
        let mut best = Candidate::default();
        for length in (allowance.shortest..=longest).rev() {
            let alike = &places[..places.partition_point(|place| place.agreeing >= length)];
            let candidate = self.candidate(length, alike, allowance);
            if candidate.expected > best.expected {
                best = candidate;
            }
        }
        best.token_ids
    }

    /// Where at least `shortest` of the last tokens of a sequence are in its own text, the longest agreement first, and
    /// of equal ones the latest.
    fn own_places(self, token_ids: &[TokenId], shortest: usize) -> Vec<Occurrence<'_>> {
        let window = &token_ids[token_ids.len().saturating_sub(WINDOW)..];
        let Some((last, before)) = window.split_last() else { return Vec::new() };
        let looked_up = &window[window.len().saturating_sub(self.longest_lookup())..];
        let (mut places, mut whole) = (Vec::new(), 0);
        for end in (1..=before.len()).rev().filter(|end| before[end - 1] == *last) {
            let agreeing = agreeing(&before[..end], looked_up);
            if agreeing >= shortest {
                places.push(Occurrence { agreeing, follows: &window[end..], repeats: true });
            }
            whole += usize::from(agreeing == looked_up.len());
            if whole == MOST_PLACES || places.len() == MOST_LOOKED_AT {
                break;
            }
        }
        places.sort_by_key(|place| std::cmp::Reverse(place.agreeing));
        places.truncate(MOST_PLACES);
        places
    }

    /// What most often followed at these places, at which `length` tokens agree.
    ///
    /// A token's probability is its share among what followed, less what the agreement leaves open.
    #[expect(clippy::cast_precision_loss, reason = "no more places than 2^52")]
    fn candidate(self, length: usize, alike: &[Occurrence<'_>], allowance: Allowance) -> Candidate {
        let most = self.most_tokens(length).min(allowance.tokens);
        let mut alike: Vec<&Occurrence<'_>> = alike.iter().collect();
        let (mut candidate, mut by_counts) = (Candidate::default(), 1.0);
        for number in 0..most {
            alike.retain(|place| place.token(number).is_some());
            let Some((token, count)) = most_frequent(alike.iter().filter_map(|place| place.token(number))) else {
                break;
            };
            by_counts *= count as f64 / alike.len() as f64;
            let probability = by_counts * likelihood(length, number);
            if by_counts < self.min_token_prob || probability < allowance.probability {
                break;
            }
            candidate.token_ids.push(token);
            candidate.expected += probability;
            alike.retain(|place| place.token(number) == Some(token));
        }
        candidate
    }

    /// The most tokens of a draft after `length` tokens that agree.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "lookups are short, and a factor is not negative; what is too large is bounded by the depth"
    )]
    fn most_tokens(self, length: usize) -> usize {
        let by_factor = (length as f64 * self.max_spec_factor) as usize;
        by_factor.min(self.max_tree_depth.saturating_sub(length)).min(self.num_speculative_tokens)
    }
}

/// How likely it is that, after `length` tokens that agree, the next one does, and `more` after it: after `n` of them, one
/// more does in `n` of `n + 1` cases.
#[expect(clippy::cast_precision_loss, reason = "lookups are short")]
fn likelihood(length: usize, more: usize) -> f64 {
    length as f64 / (length + more + 1) as f64
}

/// The token that is there most often, and how often; of several, the one that is there first.
fn most_frequent(tokens: impl Iterator<Item = TokenId>) -> Option<(TokenId, usize)> {
    let mut counts: Vec<(TokenId, usize)> = Vec::new();
    for token in tokens {
        match counts.iter_mut().find(|(known, _)| *known == token) {
            Some((_, count)) => *count += 1,
            None => counts.push((token, 1)),
        }
    }
    counts.into_iter().rev().max_by_key(|(_, count)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUFFIX: SuffixDecoding = SuffixDecoding {
        num_speculative_tokens: 24,
        max_tree_depth: 24,
        max_cached_requests: 10,
        max_spec_factor: 1.0,
        min_token_prob: 0.1,
        timed: false,
    };
    const IDLE: Allowance = Allowance { tokens: 24, probability: 0.2, shortest: 2 };

    fn place(agreeing: usize, follows: &[TokenId]) -> Occurrence<'_> {
        Occurrence { agreeing, follows, repeats: false }
    }

    #[test]
    fn what_follows_most_often_is_drafted() {
        let places = || vec![place(4, &[1, 2, 3]), place(4, &[5, 6, 7]), place(4, &[5, 6, 8]), place(4, &[5, 9])];
        assert_eq!(SUFFIX.draft(&[0], places(), IDLE), [5, 6]);
        let certain = SuffixDecoding { min_token_prob: 0.7, ..SUFFIX };
        assert_eq!(certain.draft(&[0], places(), IDLE), [5]);
        assert!(SuffixDecoding { min_token_prob: 0.8, ..SUFFIX }.draft(&[0], places(), IDLE).is_empty());
    }

    #[test]
    fn a_long_agreement_goes_before_frequent_short_ones() {
        let mut places = vec![place(2, &[9, 9]); 5];
        places.push(place(8, &[1, 2, 3, 4]));
        assert_eq!(SUFFIX.draft(&[0], places, IDLE), [1, 2, 3, 4]);
    }

    #[test]
    fn drafts_are_as_long_as_the_factor_the_depth_the_count_and_the_step_allow() {
        let follows: Vec<TokenId> = (0..30).collect();
        let length = |suffix: SuffixDecoding, agreeing: usize, allowance: Allowance| {
            suffix.draft(&[0], vec![place(agreeing, &follows)], allowance).len()
        };
        assert_eq!(length(SUFFIX, 3, IDLE), 3);
        assert_eq!(length(SuffixDecoding { max_spec_factor: 2.0, ..SUFFIX }, 3, IDLE), 6);
        assert_eq!(length(SuffixDecoding { max_spec_factor: 1e300, ..SUFFIX }, 8, IDLE), 16);
        assert_eq!(length(SuffixDecoding { max_spec_factor: 0.0, ..SUFFIX }, 8, IDLE), 0);
        assert_eq!(length(SUFFIX, 23, IDLE), 12, "12 of 24 tokens are looked up for as many");
        assert_eq!(length(SuffixDecoding { max_tree_depth: 10, ..SUFFIX }, 9, IDLE), 5);
        assert_eq!(length(SuffixDecoding { num_speculative_tokens: 2, ..SUFFIX }, 9, IDLE), 2);
        assert_eq!(length(SUFFIX, 9, Allowance { tokens: 3, ..IDLE }), 3);
        let full = SUFFIX.allowance(24, 0.8).unwrap();
        assert_eq!(full.shortest, 4);
        assert_eq!((length(SUFFIX, 3, full), length(SUFFIX, 4, full), length(SUFFIX, 16, full)), (0, 1, 4));
        assert!(SUFFIX.allowance(24, 0.95).is_some() && SUFFIX.allowance(24, 0.97).is_none());
    }

    #[test]
    fn the_own_text_counts_and_goes_on_repeating_itself() {
        assert_eq!(SUFFIX.draft(&[4, 7, 4, 7, 4, 7], Vec::new(), IDLE), [4, 7, 4, 7]);
        assert_eq!(SUFFIX.draft(&[1, 2, 3, 9, 8, 1, 2, 3], Vec::new(), IDLE), [9, 8, 1]);
        for text in [&[][..], &[1], &[1, 2, 3], &[1, 2, 3, 2]] {
            assert!(SUFFIX.draft(text, Vec::new(), IDLE).is_empty(), "{text:?}");
        }
        let shallow = SuffixDecoding { max_tree_depth: 1, ..SUFFIX };
        assert!(shallow.draft(&[7; 9], Vec::new(), IDLE).is_empty());
    }
}
