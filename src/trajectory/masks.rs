//! Sampling masks as they are kept: the ids that each token was drawn from, one row after the other.

use crate::TokenId;

/// The rows of some tokens. Each row has its own token, so a count of 0 stands for a token without a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackedMasks {
    /// How many ids the row of each token has; empty where no token has a row.
    pub counts: Vec<u32>,
    /// The ids of all rows, in the order of the tokens.
    pub ids: Vec<TokenId>,
}

impl PackedMasks {
    /// Adds the row of the next token.
    pub fn push(&mut self, row: &[TokenId]) {
        // No vocabulary has so many ids.
        self.counts.push(u32::try_from(row.len()).unwrap_or(u32::MAX));
        self.ids.extend_from_slice(row);
    }

    /// Whether no token has a row.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The rows, one for each count.
    pub fn rows(&self) -> impl Iterator<Item = &[TokenId]> {
        self.counts.iter().scan(self.ids.as_slice(), |rest, count| {
            let (row, after) = rest.split_at_checked(*count as usize)?;
            *rest = after;
            Some(row)
        })
    }

    /// Whether there is one row for each of these tokens: their ids in ascending order, the token's own among them, and
    /// nothing left over.
    pub(super) fn are_of(&self, tokens: &[TokenId]) -> bool {
        let is_row = |(row, token): (&[TokenId], &TokenId)| {
            row.is_sorted_by(|before, id| before < id) && row.binary_search(token).is_ok()
        };
        let ids = self.counts.iter().map(|count| u64::from(*count)).sum::<u64>();
        ids == self.ids.len() as u64
            && self.counts.len() == tokens.len()
            && self.rows().count() == tokens.len()
            && self.rows().zip(tokens).all(is_row)
    }

    /// Adds the rows of further tokens, of which the first one has the number `start` among all.
    pub(super) fn append(&mut self, start: usize, rows: Self) {
        if !rows.is_empty() {
            self.counts.resize(start, 0);
            self.counts.extend(rows.counts);
            self.ids.extend(rows.ids);
        }
    }

    /// Gives each of so many tokens a count, if any of them has one.
    pub(super) fn fill(&mut self, tokens: usize) {
        if !self.is_empty() {
            self.counts.resize(tokens, 0);
        }
    }

    /// The rows of the tokens in `start..end`.
    #[must_use]
    pub fn of(&self, start: usize, end: usize) -> Self {
        let sum = |counts: &[u32]| counts.iter().map(|count| *count as usize).sum::<usize>();
        let counts = self.counts.get(start..end).unwrap_or_default();
        if sum(counts) == 0 {
            return Self::default();
        }
        let first = sum(&self.counts[..start]);
        Self { counts: counts.to_vec(), ids: self.ids[first..first + sum(counts)].to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(rows: &[&[TokenId]]) -> PackedMasks {
        let mut masks = PackedMasks::default();
        for row in rows {
            masks.push(row);
        }
        masks
    }

    #[test]
    fn rows_come_out_as_they_went_in_and_stand_at_their_tokens() {
        let masks = packed(&[&[1, 2], &[7]]);
        assert_eq!(masks.rows().collect::<Vec<_>>(), [&[1, 2][..], &[7]]);
        let mut all = PackedMasks::default();
        all.append(2, masks.clone());
        all.append(5, PackedMasks::default());
        all.append(6, packed(&[&[3]]));
        all.fill(8);
        assert_eq!(all.counts, [0, 0, 2, 1, 0, 0, 1, 0]);
        assert_eq!((all.of(2, 4), all.of(6, 7), all.of(4, 6)), (masks, packed(&[&[3]]), PackedMasks::default()));
        let mut none = PackedMasks::default();
        none.fill(8);
        assert!(none.is_empty() && none.of(0, 8).is_empty());
    }

    #[test]
    fn a_row_is_ascending_and_has_its_own_token() {
        assert!(packed(&[&[1, 2], &[7]]).are_of(&[2, 7]));
        for (masks, tokens) in [
            (packed(&[&[1, 2], &[7]]), &[2][..]),
            (packed(&[&[1, 2], &[7]]), &[3, 7]),
            (packed(&[&[2, 1]]), &[1]),
            (packed(&[&[1, 1]]), &[1]),
            (packed(&[&[]]), &[1]),
            (PackedMasks { counts: vec![1], ids: vec![1, 2] }, &[1]),
            (PackedMasks { counts: vec![u32::MAX], ids: vec![1] }, &[1]),
        ] {
            assert!(!masks.are_of(tokens), "{masks:?} {tokens:?}");
        }
    }
}
