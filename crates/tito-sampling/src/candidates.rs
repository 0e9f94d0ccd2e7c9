//! Tokens whose log-probs are wanted at positions of a prompt, whichever token stands there: what a teacher is asked for.

use crate::TokenId;

/// Candidates for the tokens of a prompt from one of its positions on; vLLM's `prompt_logprob_token_ids`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    /// The position whose logits are read first; they are those of the token after it.
    first: usize,
    rows: Rows,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rows {
    /// The same at every position.
    Same(Vec<TokenId>),
    /// `width` for each position, [`Candidates::NONE`] where it has fewer.
    Own { width: usize, ids: Vec<TokenId> },
}

impl Candidates {
    /// Stands where a position has fewer candidates than others. Its log-prob is -infinity.
    pub(super) const NONE: TokenId = TokenId::MAX;

    /// Makes the same candidates for every position from `first` on.
    pub fn same(first: usize, ids: Vec<TokenId>) -> Self {
        Self { first, rows: Rows::Same(ids) }
    }

    /// Makes a row of candidates for each position from `first` on; the longest row has `width`, and `None` is no
    /// candidate.
    pub fn of_rows<R: IntoIterator<Item = Option<TokenId>>>(
        first: usize,
        width: usize,
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        let padded = |row: R| {
            let ids = row.into_iter().map(|id| id.unwrap_or(Self::NONE));
            ids.chain(std::iter::repeat(Self::NONE)).take(width)
        };
        Self { first, rows: Rows::Own { width, ids: rows.into_iter().flat_map(padded).collect() } }
    }

    /// The position whose logits are read first.
    pub fn first(&self) -> usize {
        self.first
    }

    /// How many log-probs a position gives.
    pub fn width(&self) -> usize {
        match &self.rows {
            Rows::Same(ids) => ids.len(),
            Rows::Own { width, .. } => *width,
        }
    }

    /// The candidates of a position; none before the first.
    pub fn at(&self, position: usize) -> &[TokenId] {
        let Some(row) = position.checked_sub(self.first) else { return &[] };
        match &self.rows {
            Rows::Same(ids) => ids,
            Rows::Own { width, ids } => &ids[row * width..][..*width],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SampleError, score, score_token};

    #[test]
    fn each_position_has_its_row_and_short_rows_are_filled_up() {
        let rows = [vec![Some(1), None], vec![Some(2), Some(3), Some(1)], vec![]];
        let candidates = Candidates::of_rows(4, 3, rows);
        assert_eq!((candidates.first(), candidates.width()), (4, 3));
        assert_eq!(candidates.at(3), [0; 0]);
        assert_eq!(candidates.at(4), [1, Candidates::NONE, Candidates::NONE]);
        assert_eq!(candidates.at(5), [2, 3, 1]);
        assert_eq!(candidates.at(6), [Candidates::NONE; 3]);
        let same = Candidates::same(1, vec![7, 8]);
        assert_eq!((same.at(0), same.at(1), same.at(9), same.width()), (&[][..], &[7, 8][..], &[7, 8][..], 2));
    }

    #[test]
    fn candidates_have_the_log_probs_that_the_tokens_themselves_would_have() {
        let logits = [1.0, 2.5, -3.0, 0.25];
        let scored = score(&logits, None, &[3, 0, Candidates::NONE, 3]).unwrap();
        let alone = |id| score_token(&logits, id, 0).unwrap().logprob;
        assert_eq!(scored.token, None);
        assert_eq!(scored.candidates, [alone(3), alone(0), f32::NEG_INFINITY, alone(3)]);
        assert_eq!(score(&logits, None, &[4]), Err(SampleError::OutOfVocabulary { id: 4, vocab_size: 4 }));
    }
}
