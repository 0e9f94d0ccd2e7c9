//! The best `n` logits of a vocabulary, without sorting the vocabulary.

use std::cmp::Ordering;

use crate::TokenId;

/// So many logits are compared with the threshold at once. Only the logits of a group with a hit are looked at one by
/// one.
pub(super) const GROUP: usize = 32;

/// A token and its logit, which is not NaN.
pub(super) type Candidate = (TokenId, f32);

/// The greater logit first, then the lower id: the one order of tokens in this module.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that sorting asks for")]
pub(super) fn best_first(left: &Candidate, right: &Candidate) -> Ordering {
    // Not `total_cmp`, which tells -0 from 0.
    right.1.partial_cmp(&left.1).unwrap_or(Ordering::Equal).then(left.0.cmp(&right.0))
}

/// Whether any logit of a group is at least `floor`.
#[inline]
#[expect(clippy::needless_bitwise_bool, reason = "stopping at the first hit would keep it from being vectorised")]
pub(super) fn any_at_least(group: &[f32], floor: f32) -> bool {
    group.iter().fold(false, |hit, &logit| hit | (logit >= floor))
}

/// Finds the best tokens; keeps its buffer from one position to the next.
#[derive(Debug, Default)]
pub(super) struct BestTokens {
    candidates: Vec<Candidate>,
}

impl BestTokens {
    /// The `n` best tokens (all, if there are fewer), best first.
    pub(super) fn best(&mut self, logits: &[f32], n: usize) -> &[Candidate] {
        self.select(logits, n);
        self.candidates.sort_unstable_by(best_first);
        &self.candidates
    }

    /// The `n`-th greatest logit; `n` is at least 1 and at most the number of logits.
    pub(super) fn nth_logit(&mut self, logits: &[f32], n: usize) -> f32 {
        self.select(logits, n);
        self.candidates.iter().map(|&(_, logit)| logit).fold(f32::INFINITY, f32::min)
    }

    /// Leaves the `n` best tokens in the buffer, in no particular order.
    fn select(&mut self, logits: &[f32], n: usize) {
        self.candidates.clear();
        if n == 0 {
            return;
        }
        if n >= logits.len() {
            self.candidates.extend((0..).zip(logits.iter().copied()));
            return;
        }
        // Room beyond `n` makes the pruning rare: it takes as many hits as it has room.
        let capacity = n.saturating_add(n.max(4 * GROUP));
        let mut floor = f32::NEG_INFINITY;
        for (start, group) in (0..).step_by(GROUP).zip(logits.chunks(GROUP)) {
            if !any_at_least(group, floor) {
                continue;
            }
            // A token equal to the floor cannot belong to the best: `n` of lower id are there already.
            self.candidates.extend((start..).zip(group.iter().copied()).filter(|&(_, logit)| logit >= floor));
            if self.candidates.len() > capacity {
                self.prune(n);
                floor = self.candidates.iter().map(|&(_, logit)| logit).fold(f32::INFINITY, f32::min).next_up();
            }
        }
        self.prune(n);
    }

    fn prune(&mut self, n: usize) {
        if self.candidates.len() > n {
            self.candidates.select_nth_unstable_by(n - 1, best_first);
            self.candidates.truncate(n);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sorted(logits: &[f32], n: usize) -> Vec<Candidate> {
        let mut all: Vec<Candidate> = (0..).zip(logits.iter().copied()).collect();
        all.sort_by(best_first);
        all.truncate(n);
        all
    }

    #[test]
    fn equal_logits_come_in_the_order_of_their_ids() {
        let mut best = BestTokens::default();
        assert_eq!(best.best(&[1.0, 2.0, -0.0, 2.0, 0.0], 4), [(1, 2.0), (3, 2.0), (0, 1.0), (2, -0.0)]);
    }

    #[test]
    fn masked_tokens_come_last_but_are_not_lost() {
        let logits = [f32::NEG_INFINITY, 3.0, f32::NEG_INFINITY];
        assert_eq!(BestTokens::default().best(&logits, 2), [(1, 3.0), (0, f32::NEG_INFINITY)]);
        assert_eq!(BestTokens::default().best(&logits, 9).len(), 3);
        assert!(BestTokens::default().best(&logits, 0).is_empty());
    }

    #[test]
    fn ascending_and_constant_vocabularies_prune_often_and_still_agree() {
        let ascending: Vec<f32> = (0..5000_u16).map(f32::from).collect();
        let constant = vec![0.5; 5000];
        for n in [1, 2, 20, 1000, 4999] {
            for logits in [&ascending, &constant] {
                assert_eq!(BestTokens::default().best(logits, n), sorted(logits, n));
            }
        }
    }

    proptest! {
        #[test]
        fn selection_agrees_with_sorting(
            quarters in prop::collection::vec(-40_i8..40, 1..2000),
            n in 1_usize..300,
        ) {
            let logits: Vec<f32> = quarters.iter().map(|&quarter| f32::from(quarter) / 4.0).collect();
            let mut best = BestTokens::default();
            prop_assert_eq!(best.best(&logits, n), sorted(&logits, n));
            let n = n.min(logits.len());
            prop_assert_eq!(best.nth_logit(&logits, n), sorted(&logits, n)[n - 1].1);
        }
    }
}
