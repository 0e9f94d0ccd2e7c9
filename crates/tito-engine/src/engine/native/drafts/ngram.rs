//! Drafts by prompt lookup: what followed the last tokens of a sequence where they were before in it.

use crate::TokenId;

/// How far back a sequence's own text is searched, in tokens: this bounds the time of a search, which keeps no index.
pub(super) const WINDOW: usize = 16_384;

/// Drafts by prompt lookup: what followed the last tokens where they were before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NgramLookup {
    /// The most tokens of a draft, at least 1.
    pub num_speculative_tokens: usize,
    /// The most tokens that are looked up, at least [`Self::prompt_lookup_min`].
    pub prompt_lookup_max: usize,
    /// The fewest tokens whose earlier occurrence makes a draft, at least 1.
    pub prompt_lookup_min: usize,
    /// Whether steps with drafts are timed beside steps without, and there are none where they are slower. Otherwise an estimate
    /// of their cost is believed.
    pub timed: bool,
}

impl NgramLookup {
    /// At most `limit` tokens that may follow `token_ids`: those that followed the latest of the longest earlier
    /// occurrences of their end. Text that repeats itself goes on to do so.
    pub(super) fn draft(self, token_ids: &[TokenId], limit: usize) -> Vec<TokenId> {
        let window = &token_ids[token_ids.len().saturating_sub(WINDOW)..];
        let Some((last, before)) = window.split_last() else { return Vec::new() };
        let (mut longest, mut follows) = (0, 0);
        for end in (1..=before.len()).rev().filter(|end| before[end - 1] == *last) {
            let pairs = before[..end].iter().rev().zip(window.iter().rev());
            let agreeing = pairs.take(self.prompt_lookup_max).take_while(|(one, other)| one == other).count();
            if agreeing > longest {
                (longest, follows) = (agreeing, end);
            }
            if longest == self.prompt_lookup_max {
                break;
            }
        }
        if longest < self.prompt_lookup_min {
            return Vec::new();
        }
        let period = window.len() - follows;
        (0..limit.min(self.num_speculative_tokens)).map(|place| window[follows + place % period]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NGRAM: NgramLookup =
        NgramLookup { num_speculative_tokens: 5, prompt_lookup_max: 3, prompt_lookup_min: 2, timed: false };

    #[test]
    fn a_draft_is_what_followed_the_longest_and_latest_occurrence() {
        assert_eq!(NGRAM.draft(&[1, 2, 3, 9, 8, 7, 6, 5, 0, 1, 2, 3], 5), [9, 8, 7, 6, 5]);
        assert_eq!(NGRAM.draft(&[1, 2, 3, 9, 4, 2, 3, 8, 0, 1, 2, 3], 1), [9], "the longest goes before the latest");
        assert_eq!(NGRAM.draft(&[2, 3, 9, 2, 3, 8, 0, 2, 3], 2), [8, 0], "the latest of equal ones");
        assert_eq!(NGRAM.draft(&[4, 7, 4, 7, 4, 7], 5), [4, 7, 4, 7, 4], "text that repeats itself goes on");
    }

    #[test]
    fn short_occurrences_and_short_texts_make_no_draft() {
        for text in [&[][..], &[1], &[1, 1], &[1, 2, 3, 2], &[1, 2, 3]] {
            assert!(NGRAM.draft(text, 5).is_empty(), "{text:?}");
        }
        assert!(NGRAM.draft(&[1, 2, 1, 2], 0).is_empty());
    }
}
