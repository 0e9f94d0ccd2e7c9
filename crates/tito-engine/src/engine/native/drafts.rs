//! Drafts: tokens that are guessed, computed beside the last sampled one, and kept as far as they are what is sampled.
//!
//! Owns where guesses come from and how many are worth their rows. Refuses to sample: a token's logits do not depend on
//! the rows beside it, so what is kept is what would have been sampled without drafts, to the bit.

use crate::TokenId;

/// How far back a sequence's own text is searched, in tokens: this bounds the time of a search, which keeps no index.
const WINDOW: usize = 16_384;
/// What a step costs however few rows it has, in rows.
const STEP_COST: f64 = 4.0;
/// The share of drafts that is taken to be right before anything is known.
const PRIOR: f64 = 0.5;
/// How much a draft of one token tells.
const LESSON: f64 = 0.2;
/// The share that is taken to be right at the most: nothing is certain, and a full step drafts nothing.
const MOST_RIGHT: f64 = 0.98;
/// How much is forgotten with each token that had no draft, so that another one is tried some day.
const FORGETTING: f64 = 0.01;

/// Drafts by prompt lookup: what followed the last tokens where they were before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speculation {
    /// The most tokens of a draft, at least 1.
    pub num_speculative_tokens: usize,
    /// The most tokens that are looked up, at least [`Self::prompt_lookup_min`].
    pub prompt_lookup_max: usize,
    /// The fewest tokens whose earlier occurrence makes a draft, at least 1.
    pub prompt_lookup_min: usize,
}

impl Speculation {
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

/// What is expected of the drafts of a sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Confidence {
    /// The share of tokens of drafts that is expected to be right, from 0 to 1.
    right: f64,
}

impl Default for Confidence {
    fn default() -> Self {
        Self { right: PRIOR }
    }
}

impl Confidence {
    /// How many tokens of a draft are worth their rows in a step that has `rows` without them.
    ///
    /// A row more has to give as much of a token as the step gives for what a row costs. Where a step has many rows, only
    /// drafts that are nearly certain do.
    #[expect(clippy::cast_precision_loss, reason = "no step has 2^52 rows")]
    pub(super) fn worth(self, rows: usize, most: usize) -> usize {
        let least = rows as f64 / (rows as f64 + STEP_COST);
        let mut probability = 1.0;
        let is_worth = |_: &usize| {
            probability *= self.right;
            probability >= least
        };
        (0..most).take_while(is_worth).count()
    }

    /// Learns how many tokens of a draft were right.
    #[expect(clippy::cast_precision_loss, reason = "drafts are short")]
    pub(super) fn learn(&mut self, drafted: usize, accepted: usize) {
        let tried = drafted.min(accepted + 1) as f64;
        let weight = 1.0 - (1.0 - LESSON).powf(tried);
        self.right = (self.right + (accepted as f64 / tried - self.right) * weight).min(MOST_RIGHT);
    }

    /// Takes note of a token for which no draft was worth it.
    pub(super) fn forget(&mut self) {
        self.right += (PRIOR - self.right) * FORGETTING;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NGRAM: Speculation = Speculation { num_speculative_tokens: 5, prompt_lookup_max: 3, prompt_lookup_min: 2 };

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

    #[test]
    fn drafts_get_longer_with_success_and_none_is_tried_in_a_full_step_or_after_failures() {
        let mut confidence = Confidence::default();
        assert!((1..5).contains(&confidence.worth(1, 5)));
        (0..20).for_each(|_| confidence.learn(5, 5));
        assert_eq!((confidence.worth(1, 5), confidence.worth(1, 2), confidence.worth(1_000, 5)), (5, 2, 0));
        (0..20).for_each(|_| confidence.learn(3, 0));
        assert_eq!(confidence.worth(1, 5), 0);
        let pause = (0..1_000)
            .take_while(|_| {
                confidence.forget();
                confidence.worth(1, 5) == 0
            })
            .count();
        assert!((20..200).contains(&pause), "{pause}");
    }
}
