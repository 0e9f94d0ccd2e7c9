//! What came of each token that a turn sampled.

use crate::{TokenId, trajectory::PackedMasks};

/// What came of one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The id, all bits of its log-prob and, where it was captured, its sampling mask are the same.
    Equal,
    /// The id is the same, and its log-prob has other bits.
    LogProb,
    /// The id and its log-prob are the same, and it was drawn from other ids.
    Mask,
    /// Another id was sampled.
    Id,
    /// The turn has ended before it.
    Ended,
    /// It was not sampled again, or after other ids than it was captured after.
    NotCompared,
}

/// Compares tokens with the first `compared` ones that were sampled again; there is one verdict for each that was captured.
/// What follows another id is not compared: its distribution is another one.
pub(super) fn verdicts(
    captured: &[(TokenId, f32)],
    captured_masks: &PackedMasks,
    again: &[(TokenId, f32)],
    masks: &PackedMasks,
    compared: usize,
) -> Vec<Verdict> {
    let (mut rows_then, mut rows_now) = (captured_masks.rows(), masks.rows());
    let mut verdicts = Vec::with_capacity(captured.len());
    for (index, then) in captured.iter().take(compared).enumerate() {
        let (mask_then, mask_now) = (rows_then.next(), rows_now.next().unwrap_or_default());
        let Some(now) = again.get(index) else {
            verdicts.push(Verdict::Ended);
            break;
        };
        if then.0 != now.0 {
            verdicts.push(Verdict::Id);
            break;
        }
        verdicts.push(match mask_then {
            _ if then.1.to_bits() != now.1.to_bits() => Verdict::LogProb,
            Some(mask) if mask != mask_now => Verdict::Mask,
            _ => Verdict::Equal,
        });
    }
    verdicts.resize(captured.len(), Verdict::NotCompared);
    verdicts
}

/// Returns the ids that are in the row of a token only as it was captured, and only now.
pub(super) fn other_ids(captured: &PackedMasks, again: &PackedMasks, index: usize) -> (Vec<TokenId>, Vec<TokenId>) {
    let row = |masks: &PackedMasks| masks.rows().nth(index).unwrap_or_default().to_vec();
    let (then, now) = (row(captured), row(again));
    // Rows are in ascending order.
    let only =
        |of: &[TokenId], not: &[TokenId]| of.iter().copied().filter(|id| not.binary_search(id).is_err()).collect();
    (only(&then, &now), only(&now, &then))
}

#[cfg(test)]
mod tests {
    use super::{Verdict::*, *};

    fn masks(rows: &[&[TokenId]]) -> PackedMasks {
        let mut masks = PackedMasks::default();
        for row in rows {
            masks.push(row);
        }
        masks
    }

    #[test]
    fn each_token_has_a_verdict_and_nothing_is_compared_after_another_id() {
        let then = [(1, -1.0), (2, -2.0), (3, -3.0), (4, -4.0)];
        let none = PackedMasks::default();
        let of = |again: &[(TokenId, f32)], compared| verdicts(&then, &none, again, &none, compared);
        assert_eq!(of(&then, 4), [Equal; 4]);
        assert_eq!(of(&then, 2), [Equal, Equal, NotCompared, NotCompared]);
        let bits = f32::from_bits((-2.0_f32).to_bits() ^ 1);
        assert_eq!(of(&[(1, -1.0), (2, bits), (3, -3.0), (4, -4.0)], 4), [Equal, LogProb, Equal, Equal]);
        assert_eq!(of(&[(1, -1.0), (5, -2.0), (3, -3.0), (4, -4.0)], 4), [Equal, Id, NotCompared, NotCompared]);
        assert_eq!(of(&[(1, -1.0)], 4), [Equal, Ended, NotCompared, NotCompared]);
    }

    #[test]
    fn another_row_is_named_by_the_ids_that_only_one_of_them_has() {
        let then = [(1, 0.0), (2, -1.0)];
        let (captured, again) = (masks(&[&[1, 3], &[2, 4, 6]]), masks(&[&[1, 3], &[2, 5, 6]]));
        assert_eq!(verdicts(&then, &captured, &then, &again, 2), [Equal, Mask]);
        assert_eq!(other_ids(&captured, &again, 1), (vec![4], vec![5]));
        // Without captured masks, none is compared.
        assert_eq!(verdicts(&then, &PackedMasks::default(), &then, &again, 2), [Equal; 2]);
    }
}
