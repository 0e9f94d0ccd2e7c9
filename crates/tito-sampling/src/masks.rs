//! Tokens that may not be sampled at a position: `allowed_token_ids` and `bad_words`.

use super::{
    SampleError, TokenMask,
    best::Candidate,
    softmax::{BlockSums, Scale},
};
use crate::TokenId;

/// The logits to sample from: those of the whole vocabulary, or of the allowed tokens only.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pool<'a> {
    pub(super) logits: &'a [f32],
    ids: Option<&'a [TokenId]>,
    vocab_size: usize,
}

impl<'a> Pool<'a> {
    pub(super) fn whole(logits: &'a [f32]) -> Self {
        Self { logits, ids: None, vocab_size: logits.len() }
    }

    /// Some tokens of a vocabulary, ascending, with their logits.
    pub(super) fn of(logits: &'a [f32], ids: &'a [TokenId], vocab_size: usize) -> Self {
        Self { logits, ids: Some(ids), vocab_size }
    }

    /// Sums their weights: those of the whole vocabulary, of which all other tokens weigh nothing.
    pub(super) fn sum_into(self, sums: &mut BlockSums, scale: Scale) -> Result<&BlockSums, SampleError> {
        match self.ids {
            Some(ids) => sums.compute_listed((ids, self.logits), self.vocab_size, scale),
            None => sums.compute(self.logits, scale),
        }
    }

    /// The index of the first token whose cumulative weight exceeds `uniform` of the total of these sums, which are
    /// [of the pool](Self::sum_into).
    pub(super) fn locate(self, sums: &BlockSums, scale: Scale, uniform: f64) -> usize {
        match self.ids {
            Some(ids) => sums.locate_listed((ids, self.logits), scale, uniform),
            None => sums.locate(self.logits, scale, uniform),
        }
    }

    /// The token at an index into `logits`.
    pub(super) fn id(self, index: usize) -> TokenId {
        match self.ids {
            Some(ids) => ids[index],
            None => TokenId::try_from(index).expect("a token's index is its id"),
        }
    }

    /// The first index with this logit, which is one of the pool's.
    pub(super) fn position(self, logit: f32) -> usize {
        self.logits.iter().position(|&other| other >= logit).unwrap_or_default()
    }

    /// Tokens of the pool, given by index.
    pub(super) fn ids_of(self, kept: &[Candidate]) -> impl Iterator<Item = TokenId> {
        kept.iter().map(move |&(index, _)| self.id(index as usize))
    }

    /// The tokens that have a probability.
    pub(super) fn possible(self) -> impl Iterator<Item = TokenId> {
        (0..).zip(self.logits).filter(|(_, logit)| logit.is_finite()).map(move |(index, _)| self.id(index))
    }

    /// Writes the logits of some of the pool's tokens, given by index, to their places in a vocabulary.
    pub(super) fn scatter(self, kept: &[Candidate], vocabulary: &mut [f32]) {
        for &(index, logit) in kept {
            vocabulary[self.id(index as usize) as usize] = logit;
        }
    }

    /// Writes the logits of all of the pool's tokens to their places in a vocabulary.
    pub(super) fn scatter_all(self, vocabulary: &mut [f32]) {
        for (index, &logit) in self.logits.iter().enumerate() {
            vocabulary[self.id(index) as usize] = logit;
        }
    }
}

/// The tokens of a mask with their logits, in room that outlives a position.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    ids: Vec<TokenId>,
    logits: Vec<f32>,
}

impl Gathered {
    /// The logits of the tokens of a mask; one without a logit is left out. Where more than three quarters of a vocabulary are
    /// left, it is faster to look at all of it than to list them: the others come too then, with -infinity. Both give the same
    /// bits.
    pub(super) fn gather(&mut self, mask: &TokenMask, logits: &[f32]) -> Pool<'_> {
        if mask.len() >= logits.len() / 4 * 3 {
            mask.leave(logits, &mut self.logits);
            return Pool::whole(&self.logits);
        }
        self.ids.clear();
        self.ids.extend(mask.ids().take_while(|&id| (id as usize) < logits.len()));
        self.logits.clear();
        self.logits.extend(self.ids.iter().map(|&id| logits[id as usize]));
        Pool::of(&self.logits, &self.ids, logits.len())
    }
}

/// The tokens that would complete one of `bad_words` after `output`. A word of one token is always about to be complete.
pub(super) fn completing_tokens<'a>(
    bad_words: &'a [Vec<TokenId>],
    output: &'a [TokenId],
) -> impl Iterator<Item = TokenId> {
    bad_words.iter().filter_map(|word| {
        let (&last, start) = word.split_last()?;
        output.ends_with(start).then_some(last)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_word_is_stopped_at_its_last_token_only() {
        let words = [vec![7], vec![1, 2, 3], vec![2, 4], vec![]];
        let blocked = |output: &[TokenId]| completing_tokens(&words, output).collect::<Vec<_>>();
        assert_eq!(blocked(&[]), [7]);
        assert_eq!(blocked(&[1]), [7]);
        assert_eq!(blocked(&[2]), [7, 4]);
        assert_eq!(blocked(&[1, 2]), [7, 3, 4]);
        assert_eq!(blocked(&[9, 1, 2]), [7, 3, 4]);
        assert_eq!(blocked(&[1, 2, 9]), [7]);
    }

    #[test]
    fn allowed_tokens_are_gathered_once_each_in_the_order_of_ids() {
        let mut logits = vec![0.0; 80];
        (logits[1], logits[3]) = (0.1, 0.3);
        let mut gathered = Gathered::default();
        let pool = gathered.gather(&[3, 1, 3, 99].into_iter().collect(), &logits);
        assert_eq!(pool.logits, [0.1, 0.3]);
        assert_eq!([pool.id(0), pool.id(1)], [1, 3]);
    }

    #[test]
    fn where_many_are_allowed_the_others_are_minus_infinity() {
        let mut gathered = Gathered::default();
        let pool = gathered.gather(&[3, 1, 2].into_iter().collect(), &[0.0, 0.1, 0.2, 0.3]);
        assert_eq!(pool.logits, [f32::NEG_INFINITY, 0.1, 0.2, 0.3]);
        assert_eq!(pool.possible().collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_whole_vocabulary_is_its_own_index() {
        assert_eq!(Pool::whole(&[0.0; 4]).id(3), 3);
    }
}
