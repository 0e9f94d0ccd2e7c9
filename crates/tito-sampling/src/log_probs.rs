//! Log-probs and ranks of sampled and given tokens.

use std::sync::Arc;

use super::{
    Candidates, Logprobs, SampleError,
    best::{BestTokens, Candidate},
    softmax::{BlockSums, Scale, max_logit},
};
use crate::TokenId;

/// The least log-prob that is reported, also for a token of probability zero; vLLM's, as JSON has no infinities.
const FLOOR: f32 = -9999.0;

/// A token and its log-prob among the alternatives of one position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopLogprob {
    /// The token.
    pub id: TokenId,
    /// Natural logarithm, at least -9999.
    pub logprob: f32,
    /// 1 for the most probable token. Among equals in a list of the best it is the place in the list; otherwise it
    /// counts every token at least this probable.
    pub rank: u32,
}

/// A sampled (or, for prompt log-probs, given) token.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledToken {
    /// The token.
    pub id: TokenId,
    /// Natural logarithm, at least -9999.
    pub logprob: f32,
    /// As vLLM reports it: the rank it has in `top_logprobs` or, when it is not there, the number of tokens that are at
    /// least as probable, itself among them. The two differ only where tokens are exactly equally probable.
    pub rank: u32,
    /// In rank order, or as they were asked for, without the sampled token put first (that is presentation).
    pub top_logprobs: Vec<TopLogprob>,
    /// The tokens that it was drawn from, itself among them, ascending; only where that is asked for.
    pub sampling_mask: Option<Arc<[TokenId]>>,
}

/// A distribution over the vocabulary, as logits and what normalises them. A token of probability zero has -infinity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Distribution<'a> {
    logits: &'a [f32],
    scale: Scale,
    ln_total: f64,
}

impl<'a> Distribution<'a> {
    /// `total` is the sum of the weights that `scale` gives to `logits`.
    pub(super) fn new(logits: &'a [f32], scale: Scale, total: f64) -> Self {
        Self { logits, scale, ln_total: total.ln() }
    }

    pub(super) fn logprob(&self, logit: f32) -> f32 {
        #[expect(clippy::cast_possible_truncation, reason = "the one rounding of a log-prob")]
        let rounded = (self.scale.exponent(logit) - self.ln_total) as f32;
        rounded.max(FLOOR)
    }

    /// How many tokens there are.
    pub(super) fn vocab_size(&self) -> usize {
        self.logits.len()
    }

    pub(super) fn logit(&self, id: TokenId) -> Option<f32> {
        self.logits.get(id as usize).copied()
    }

    /// The number of tokens at least as probable, which is vLLM's `(logprobs >= logprob).sum()`.
    fn rank(&self, logit: f32) -> u32 {
        self.logits.iter().map(|&other| u32::from(other >= logit)).sum()
    }

    pub(super) fn ranked(&self, (id, logit): Candidate, rank: u32) -> TopLogprob {
        TopLogprob { id, logprob: self.logprob(logit), rank }
    }

    /// The alternatives that `wanted` asks for.
    pub(super) fn alternatives(&self, wanted: Option<&Logprobs>, best: &mut BestTokens) -> Vec<TopLogprob> {
        let listed = match wanted {
            None | Some(Logprobs::Top(0)) => &[],
            Some(&Logprobs::Top(n)) => best.best(self.logits, n),
            Some(Logprobs::All) => best.best(self.logits, usize::MAX),
            Some(Logprobs::Ids(ids)) => return self.of_ids(ids),
        };
        (1..).zip(listed).map(|(rank, &candidate)| self.ranked(candidate, rank)).collect()
    }

    /// The given tokens in their order, each once; a token without a logit is left out.
    fn of_ids(&self, ids: &[TokenId]) -> Vec<TopLogprob> {
        let first = |&(place, id): &(usize, &TokenId)| !ids[..place].contains(id);
        let given = ids.iter().enumerate().filter(first);
        given
            .filter_map(|(_, &id)| {
                let &logit = self.logits.get(id as usize)?;
                Some(self.ranked((id, logit), self.rank(logit)))
            })
            .collect()
    }

    /// The log-probs of candidates, in their order.
    fn of_candidates(&self, ids: &[TokenId]) -> Result<Vec<f32>, SampleError> {
        let vocab_size = self.vocab_size();
        let logprob = |&id: &TokenId| match self.logit(id) {
            _ if id == Candidates::NONE => Ok(f32::NEG_INFINITY),
            None => Err(SampleError::OutOfVocabulary { id, vocab_size }),
            Some(logit) => Ok(self.logprob(logit)),
        };
        ids.iter().map(logprob).collect()
    }

    /// Describes the token of one position; its id has a logit.
    pub(super) fn describe(&self, id: TokenId, wanted: Option<&Logprobs>, best: &mut BestTokens) -> SampledToken {
        let logit = self.logits[id as usize];
        let top_logprobs = self.alternatives(wanted, best);
        let listed = top_logprobs.iter().find(|top| top.id == id).map(|top| top.rank);
        let rank = listed.unwrap_or_else(|| self.rank(logit));
        SampledToken { id, logprob: self.logprob(logit), rank, top_logprobs, sampling_mask: None }
    }
}

/// What is said of a position of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// The token that follows in the prompt, where it was asked for.
    pub token: Option<SampledToken>,
    /// The log-probs of the candidates of this position.
    pub candidates: Vec<f32>,
}

/// The raw log-prob of a given token and of the `top` most probable ones alone, see [`score`].
///
/// # Errors
///
/// If the token has no logit, or the logits are not finite.
#[cfg(any(test, feature = "internals"))]
pub fn score_token(logits: &[f32], id: TokenId, top: usize) -> Result<SampledToken, SampleError> {
    let nothing = SampleError::OutOfVocabulary { id, vocab_size: logits.len() };
    score(logits, Some((id, top)), &[])?.token.ok_or(nothing)
}

/// The raw log-probs of a position of a prompt: that of a given token with the `top` most probable ones, where they are
/// asked for, and those of candidates. That is what `prompt_logprobs`, `echo` and `prompt_logprob_token_ids` report.
///
/// The same arithmetic as [`SequenceSampler::step`](super::SequenceSampler::step) in [`LogprobsMode::Raw`], to the bit.
///
/// # Errors
///
/// If a token has no logit, or the logits are not finite.
///
/// [`LogprobsMode::Raw`]: super::LogprobsMode::Raw
pub fn score(logits: &[f32], token: Option<(TokenId, usize)>, candidates: &[TokenId]) -> Result<Score, SampleError> {
    if let Some((id, _)) = token.filter(|(id, _)| *id as usize >= logits.len()) {
        return Err(SampleError::OutOfVocabulary { id, vocab_size: logits.len() });
    }
    let scale = Scale::new(max_logit(logits)?, 1.0);
    let mut sums = BlockSums::default();
    sums.compute(logits, scale)?;
    let distribution = Distribution::new(logits, scale, sums.total());
    let describe = |(id, top)| distribution.describe(id, Some(&Logprobs::Top(top)), &mut BestTokens::default());
    Ok(Score { token: token.map(describe), candidates: distribution.of_candidates(candidates)? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listed(token: &SampledToken) -> Vec<(TokenId, u32)> {
        token.top_logprobs.iter().map(|top| (top.id, top.rank)).collect()
    }

    #[test]
    fn equal_logits_share_the_probability() {
        let token = score_token(&[3.0; 4], 2, 0).unwrap();
        assert_eq!(token.logprob, 0.25_f32.ln());
        assert!(token.top_logprobs.is_empty());
    }

    #[test]
    fn the_rank_counts_equals_against_the_token_as_vllm_does() {
        let logits = [1.0, 2.0, 2.0, 3.0];
        let rank = |id| score_token(&logits, id, 0).unwrap().rank;
        assert_eq!([rank(0), rank(1), rank(2), rank(3)], [4, 3, 3, 1]);
    }

    #[test]
    fn a_listed_token_has_the_rank_of_its_place_in_the_list() {
        let logits = [1.0, 2.0, 2.0, 3.0];
        let token = score_token(&logits, 1, 2).unwrap();
        assert_eq!(token.rank, 2);
        assert_eq!(listed(&token), [(3, 1), (1, 2)]);
        let token = score_token(&logits, 2, 2).unwrap();
        assert_eq!(token.rank, 3);
        assert_eq!(listed(&token), [(3, 1), (1, 2)]);
    }

    #[test]
    fn a_token_of_probability_zero_has_the_floor() {
        let token = score_token(&[0.0, f32::NEG_INFINITY, -20_000.0], 1, 3).unwrap();
        assert_eq!(token.logprob, FLOOR);
        assert_eq!(token.rank, 3);
        assert_eq!(token.top_logprobs.iter().map(|top| top.logprob).collect::<Vec<_>>(), [0.0, FLOOR, FLOOR]);
    }

    #[test]
    fn more_alternatives_than_tokens_give_every_token() {
        assert_eq!(listed(&score_token(&[0.0, 1.0], 0, 20).unwrap()), [(1, 1), (0, 2)]);
    }

    #[test]
    fn given_tokens_come_once_each_in_their_own_order_with_their_ranks() {
        let logits = [1.0, 2.0, 2.0, 3.0];
        let scale = Scale::new(3.0, 1.0);
        let wanted = Logprobs::Ids(vec![0, 2, 9, 0]);
        let distribution = Distribution::new(&logits, scale, 1.0);
        let token = distribution.describe(3, Some(&wanted), &mut BestTokens::default());
        assert_eq!(listed(&token), [(0, 4), (2, 3)]);
        assert_eq!(token.rank, 1);
    }

    #[test]
    fn what_has_no_log_prob_is_an_error() {
        assert_eq!(score_token(&[0.0, 1.0], 2, 0), Err(SampleError::OutOfVocabulary { id: 2, vocab_size: 2 }));
        assert_eq!(score_token(&[0.0, f32::NAN], 0, 0), Err(SampleError::NonFiniteLogits));
        assert_eq!(score_token(&[f32::INFINITY, 0.0], 1, 0), Err(SampleError::NonFiniteLogits));
        assert_eq!(score_token(&[f32::NEG_INFINITY; 2], 0, 0), Err(SampleError::NothingLeft));
    }

    proptest! {
        #[test]
        fn log_probs_agree_with_a_naive_softmax(
            logits in prop::collection::vec(-60.0_f32..60.0, 1..3000),
            place in any::<prop::sample::Index>(),
        ) {
            let index = place.index(logits.len());
            let total: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
            let naive = f64::from(logits[index]) - total.ln();
            let token = score_token(&logits, TokenId::try_from(index).unwrap(), 5).unwrap();
            let rounding = naive.abs() * f64::from(f32::EPSILON);
            prop_assert!((f64::from(token.logprob) - naive).abs() <= 1e-11 + rounding);
            prop_assert!(token.top_logprobs.is_sorted_by(|left, right| left.logprob >= right.logprob));
        }

        #[test]
        fn probabilities_of_the_whole_vocabulary_sum_to_one(logits in prop::collection::vec(-20.0_f32..20.0, 1..2000)) {
            let token = score_token(&logits, 0, logits.len()).unwrap();
            let sum: f64 = token.top_logprobs.iter().map(|top| f64::from(top.logprob).exp()).sum();
            prop_assert!((sum - 1.0).abs() < 1e-6, "{}", sum);
        }
    }
}
