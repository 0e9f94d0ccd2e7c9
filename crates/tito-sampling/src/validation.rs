//! What sampling parameters must keep to, in vLLM's words; the ranges of numbers are beside these, in `params`.
//!
//! Sentences and their order are those of vLLM 0.32's `SamplingParams`, with the numbers as Python writes them.

use std::{collections::HashSet, hash::Hash, ops::Deref, sync::Arc};

use super::{Logprobs, SamplingError, SamplingParams, SharedConstraint};
use crate::TokenId;

const GREATEST_BIAS: f32 = 100.0;
/// vLLM's `MAX_LOGPROB_TOKEN_IDS`.
const MOST_LOGPROB_TOKEN_IDS: usize = 128;

/// Parameters that keep to their ranges and to a vocabulary, which nothing but [`SamplingParams::validated`] makes: the
/// only ones that samplers and engines take.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidSamplingParams(SamplingParams);

impl Deref for ValidSamplingParams {
    type Target = SamplingParams;

    fn deref(&self) -> &SamplingParams {
        &self.0
    }
}

impl ValidSamplingParams {
    /// The parameters of the `index`-th of several sequences with one prompt. Its seed is the request's plus the index,
    /// as in vLLM.
    #[must_use]
    pub fn of_sequence(self: &Arc<Self>, index: usize) -> Arc<Self> {
        match self.seed {
            Some(seed) if index > 0 => {
                let seed = Some(seed.wrapping_add(index as u64));
                Arc::new(Self(SamplingParams { seed, ..self.0.clone() }))
            }
            _ => Arc::clone(self),
        }
    }

    /// The parameters with this seed.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Self {
        Self(SamplingParams { seed: Some(seed), ..self.0.clone() })
    }

    /// The parameters with this `max_tokens`, which is as many as there is room for; one token is sampled in any case.
    pub fn with_max_tokens(&self, max_tokens: usize) -> Result<Self, SamplingError> {
        self.check_min_tokens(max_tokens)?;
        Ok(Self(SamplingParams { max_tokens: max_tokens.max(1), ..self.0.clone() }))
    }

    /// Has the output keep to `constraint`.
    pub fn constrain(&mut self, constraint: SharedConstraint) {
        self.0.constraint = Some(constraint);
    }
}

impl SamplingParams {
    /// Checks every field against its range and against a vocabulary of `vocab_size` tokens.
    ///
    /// Also settles, as vLLM does, what the sampler relies on: a temperature between 0 and 0.01 becomes 0.01, biases
    /// are clamped to ±100 and the last of several for one token counts, greedy sampling has no truncation. Ids are named
    /// once each, so that no list is longer than the vocabulary, however often a request repeats itself.
    pub fn validated(mut self, vocab_size: usize) -> Result<ValidSamplingParams, SamplingError> {
        self.settle_numbers()?;
        self.check_lengths()?;
        self.check_ids(vocab_size)?;
        self.settle_biases()?;
        keep_first(&mut self.stop_token_ids);
        self.allowed_token_ids.as_mut().map(keep_first);
        keep_first(&mut self.bad_words);
        Ok(ValidSamplingParams(self))
    }

    fn check_lengths(&self) -> Result<(), SamplingError> {
        let max_tokens = self.max_tokens;
        if max_tokens < 1 {
            return Err(SamplingError::NoTokens { asked: 0 });
        }
        self.check_min_tokens(max_tokens)
    }

    fn check_min_tokens(&self, max_tokens: usize) -> Result<(), SamplingError> {
        let min_tokens = self.min_tokens;
        if min_tokens > max_tokens {
            return Err(SamplingError::FewerThanMinTokens { min_tokens, max_tokens });
        }
        Ok(())
    }

    fn check_ids(&self, vocab_size: usize) -> Result<(), SamplingError> {
        let unknown = |ids: &mut dyn Iterator<Item = TokenId>| -> Vec<TokenId> {
            ids.filter(|&id| id as usize >= vocab_size).collect()
        };
        if let Some(Logprobs::Ids(ids)) = &self.logprobs {
            if ids.len() > MOST_LOGPROB_TOKEN_IDS {
                let count = ids.len();
                let message = format!(
                    "Requested logprob_token_ids of length {count}, which is greater than max allowed: \
                     {MOST_LOGPROB_TOKEN_IDS}"
                );
                return Err(SamplingError::named("logprob_token_ids", &message, count));
            }
            reject_unknown("logprob_token_ids", &unknown(&mut ids.iter().copied()), vocab_size)?;
        }
        let biased = &mut self.logit_bias.iter().map(|&(id, _)| id);
        reject_unknown("logit_bias", &unknown(biased), vocab_size)?;
        reject_unknown("stop_token_ids", &unknown(&mut self.stop_token_ids.iter().copied()), vocab_size)?;
        if let Some(allowed) = &self.allowed_token_ids {
            if allowed.is_empty() {
                let message = "allowed_token_ids is not None and empty!";
                return Err(SamplingError::named("allowed_token_ids", message, "[]"));
            }
            reject_unknown("allowed_token_ids", &unknown(&mut allowed.iter().copied()), vocab_size)?;
        }
        self.check_bad_words(&unknown(&mut self.bad_words.iter().flatten().copied()), vocab_size)
    }

    /// vLLM's sentences end with the words as text, which are not known here.
    fn check_bad_words(&self, unknown: &[TokenId], vocab_size: usize) -> Result<(), SamplingError> {
        let error = |message| Err(SamplingError::Refused { param: Some("bad_words"), message });
        if self.bad_words.iter().any(Vec::is_empty) {
            return error(format!("{} (parameter=bad_words)", SamplingError::NO_BAD_WORD));
        }
        if !unknown.is_empty() {
            return error(format!(
                "The model vocabulary size is {vocab_size}, but the following tokens were specified as bad: {unknown:?}. \
                 All token id values should be integers satisfying: 0 <= token_id <= {}. (parameter=bad_words)",
                vocab_size.saturating_sub(1)
            ));
        }
        Ok(())
    }

    fn settle_biases(&mut self) -> Result<(), SamplingError> {
        let mut settled: Vec<(TokenId, f32)> = Vec::with_capacity(self.logit_bias.len());
        // Stable, so that of several biases for one token the last stays last.
        self.logit_bias.sort_by_key(|&(id, _)| id);
        for &(id, bias) in &self.logit_bias {
            if bias.is_nan() {
                let message = format!("logit_bias values must be numbers, got nan for token_id {id}.");
                return Err(SamplingError::named("logit_bias", &message, "nan"));
            }
            let bias = bias.clamp(-GREATEST_BIAS, GREATEST_BIAS);
            match settled.last_mut() {
                Some(last) if last.0 == id => last.1 = bias,
                _ => settled.push((id, bias)),
            }
        }
        self.logit_bias = settled;
        Ok(())
    }
}

#[cfg(test)]
impl SamplingParams {
    /// As they are, for tests of values that no request could have.
    pub(crate) fn unchecked(self) -> Arc<ValidSamplingParams> {
        Arc::new(ValidSamplingParams(self))
    }
}

#[cfg(any(test, feature = "internals"))]
impl SamplingParams {
    /// Valid ones, for tests that are about something else than a vocabulary.
    ///
    /// # Panics
    /// Where they are valid for no vocabulary.
    #[expect(clippy::expect_used, reason = "only tests call it")]
    pub fn valid(self) -> Arc<ValidSamplingParams> {
        Arc::new(self.validated(usize::MAX).expect("the test's parameters are valid"))
    }
}

/// Leaves the first of equal values, in their order.
fn keep_first<T: Clone + Eq + Hash>(values: &mut Vec<T>) {
    let mut seen = HashSet::new();
    values.retain(|value| seen.insert(value.clone()));
}

fn reject_unknown(param: &'static str, unknown: &[TokenId], vocab_size: usize) -> Result<(), SamplingError> {
    if unknown.is_empty() {
        return Ok(());
    }
    Err(SamplingError::unknown_ids(param, unknown, vocab_size))
}

#[cfg(test)]
mod tests {
    use super::{super::error::python, *};

    fn base() -> SamplingParams {
        SamplingParams::default()
    }

    fn refusal(params: SamplingParams) -> (Option<&'static str>, String) {
        let error = params.validated(100).expect_err("a refusal");
        let param = match &error {
            SamplingError::Refused { param, .. } => *param,
            SamplingError::NoTokens { .. } => Some("max_tokens"),
            SamplingError::FewerThanMinTokens { .. } => None,
        };
        (param, error.to_string())
    }

    #[test]
    fn defaults_are_valid_and_stay_as_they_are() {
        assert_eq!(*base().validated(100).unwrap(), base());
    }

    #[test]
    fn refusals_that_vllm_does_not_name_a_parameter_for() {
        let cases = [
            (SamplingParams { presence_penalty: 5.0, ..base() }, "presence_penalty must be in [-2, 2], got 5.0."),
            (
                SamplingParams { frequency_penalty: f64::NAN, ..base() },
                "frequency_penalty must be in [-2, 2], got nan.",
            ),
            (
                SamplingParams { repetition_penalty: f64::INFINITY, ..base() },
                "repetition_penalty must be a finite number, got inf.",
            ),
            (
                SamplingParams { repetition_penalty: 0.0, ..base() },
                "repetition_penalty must be greater than zero, got 0.0.",
            ),
            (SamplingParams { min_p: 2.0, ..base() }, "min_p must be in [0, 1], got 2.0."),
            (
                SamplingParams { min_tokens: 50, max_tokens: 10, ..base() },
                "min_tokens must be less than or equal to max_tokens=10, got 50.",
            ),
        ];
        for (params, message) in cases {
            assert_eq!(refusal(params), (None, message.to_owned()));
        }
    }

    #[test]
    fn refusals_that_vllm_names_the_parameter_of() {
        let cases = [
            (
                SamplingParams { temperature: 100.0, ..base() },
                "temperature",
                "temperature must be in [0, 2], got 100.0. (parameter=temperature, value=100.0)",
            ),
            (
                SamplingParams { temperature: -1.0, ..base() },
                "temperature",
                "temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)",
            ),
            (
                SamplingParams { temperature: f64::NAN, ..base() },
                "temperature",
                "temperature must be a finite number, got nan. (parameter=temperature, value=nan)",
            ),
            (
                SamplingParams { top_p: 0.0, ..base() },
                "top_p",
                "top_p must be in (0, 1], got 0.0. (parameter=top_p, value=0.0)",
            ),
            (
                SamplingParams { top_p: f64::NAN, ..base() },
                "top_p",
                "top_p must be in (0, 1], got nan. (parameter=top_p, value=nan)",
            ),
            (
                SamplingParams { max_tokens: 0, ..base() },
                "max_tokens",
                "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",
            ),
        ];
        for (params, param, message) in cases {
            assert_eq!(refusal(params), (Some(param), message.to_owned()));
        }
    }

    #[test]
    fn tokens_outside_the_vocabulary_are_refused() {
        let cases = [
            (
                SamplingParams { logit_bias: vec![(999_999, 1.0), (3, 1.0)], ..base() },
                "logit_bias",
                "token_id(s) [999999] in logit_bias contain out-of-vocab token ids. Vocabulary size: 100 \
                 (parameter=logit_bias, value=[999999])",
            ),
            (
                SamplingParams { logit_bias: vec![(3, f32::NAN)], ..base() },
                "logit_bias",
                "logit_bias values must be numbers, got nan for token_id 3. (parameter=logit_bias, value=nan)",
            ),
            (
                SamplingParams { stop_token_ids: vec![99, 100, 101], ..base() },
                "stop_token_ids",
                "token_id(s) [100, 101] in stop_token_ids contain out-of-vocab token ids. Vocabulary size: 100 \
                 (parameter=stop_token_ids, value=[100, 101])",
            ),
            (
                SamplingParams { logprobs: Some(Logprobs::Ids(vec![100])), ..base() },
                "logprob_token_ids",
                "token_id(s) [100] in logprob_token_ids contain out-of-vocab token ids. Vocabulary size: 100 \
                 (parameter=logprob_token_ids, value=[100])",
            ),
            (
                SamplingParams { logprobs: Some(Logprobs::Ids(vec![0; 129])), ..base() },
                "logprob_token_ids",
                "Requested logprob_token_ids of length 129, which is greater than max allowed: 128 \
                 (parameter=logprob_token_ids, value=129)",
            ),
            (
                SamplingParams { allowed_token_ids: Some(vec![]), ..base() },
                "allowed_token_ids",
                "allowed_token_ids is not None and empty! (parameter=allowed_token_ids, value=[])",
            ),
            (
                SamplingParams { allowed_token_ids: Some(vec![1, 100]), ..base() },
                "allowed_token_ids",
                "allowed_token_ids contains out-of-vocab token id! (parameter=allowed_token_ids, value=[100])",
            ),
            (
                SamplingParams { bad_words: vec![vec![]], ..base() },
                "bad_words",
                "bad_words entries must tokenize to at least one token. (parameter=bad_words)",
            ),
            (
                SamplingParams { bad_words: vec![vec![1, 100]], ..base() },
                "bad_words",
                "The model vocabulary size is 100, but the following tokens were specified as bad: [100]. All token id \
                 values should be integers satisfying: 0 <= token_id <= 99. (parameter=bad_words)",
            ),
        ];
        for (params, param, message) in cases {
            assert_eq!(refusal(params), (Some(param), message.to_owned()));
        }
    }

    #[test]
    fn the_ends_of_ranges_are_valid() {
        let low = SamplingParams {
            temperature: 0.0,
            top_p: 1e-9,
            presence_penalty: -2.0,
            frequency_penalty: -2.0,
            repetition_penalty: 1e-9,
            max_tokens: 1,
            min_tokens: 1,
            stop_token_ids: vec![99],
            ..base()
        };
        let high = SamplingParams {
            temperature: 2.0,
            top_k: usize::MAX,
            min_p: 1.0,
            presence_penalty: 2.0,
            frequency_penalty: 2.0,
            ..base()
        };
        assert!(low.validated(100).is_ok());
        assert!(high.validated(100).is_ok());
    }

    #[test]
    fn a_tiny_temperature_is_raised_and_zero_is_greedy_without_truncation() {
        let params = SamplingParams { temperature: 1e-6, top_k: 5, ..base() }.validated(100).unwrap();
        assert_eq!((params.temperature, params.top_k, params.is_greedy()), (0.01, 5, false));
        let params = SamplingParams { temperature: 0.0, top_k: 5, top_p: 0.5, min_p: 0.5, ..base() };
        let params = params.validated(100).unwrap();
        assert!(params.is_greedy());
        assert_eq!((params.top_k, params.top_p, params.min_p), (0, 1.0, 0.0));
    }

    #[test]
    fn biases_are_clamped_and_the_last_of_a_token_counts() {
        let logit_bias = vec![(5, f32::INFINITY), (2, -101.0), (5, 3.0)];
        let params = SamplingParams { logit_bias, ..base() }.validated(100).unwrap();
        assert_eq!(params.logit_bias, [(2, -100.0), (5, 3.0)]);
    }

    #[test]
    fn ids_that_are_repeated_are_named_once_in_their_order() {
        let params = SamplingParams {
            stop_token_ids: vec![7, 3, 7, 7, 3],
            allowed_token_ids: Some(vec![9, 9, 1]),
            bad_words: vec![vec![1, 2], vec![3], vec![1, 2]],
            ..base()
        };
        let params = params.validated(100).unwrap();
        assert_eq!(params.stop_token_ids, [7, 3]);
        assert_eq!(params.allowed_token_ids.as_deref(), Some(&[9, 1][..]));
        assert_eq!(params.bad_words, [vec![1, 2], vec![3]]);
    }

    #[test]
    fn floats_are_written_as_python_does() {
        let cases = [
            (3.0, "3.0"),
            (-0.5, "-0.5"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(python(value), text);
        }
    }
}
