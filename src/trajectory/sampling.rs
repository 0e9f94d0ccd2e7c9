//! The fields that decided what was sampled.

use serde::{Deserialize, Serialize};

use crate::{TokenId, sampling::SamplingParams};

/// The sampling of one sequence, in the words of requests; the same fields sample the same ids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the fields are those of requests")]
pub struct SamplingUsed {
    /// 0 is greedy.
    pub temperature: f64,
    /// 1 is off.
    pub top_p: f64,
    /// 0 is off.
    pub top_k: usize,
    /// 0 is off.
    pub min_p: f64,
    /// 0 is off.
    pub presence_penalty: f64,
    /// 0 is off.
    pub frequency_penalty: f64,
    /// 1 is off.
    pub repetition_penalty: f64,
    /// What was added to the logits of tokens.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// The only tokens that could be sampled.
    pub allowed_token_ids: Option<Vec<TokenId>>,
    /// Sequences that the output could not complete.
    pub bad_words_token_ids: Vec<Vec<TokenId>>,
    /// The seed of the sequence, also where the server drew it.
    pub seed: Option<u64>,
    /// The most tokens.
    pub max_tokens: usize,
    /// Before so many tokens, none could end the sequence.
    pub min_tokens: usize,
    /// Whether tokens that end sequences did not.
    pub ignore_eos: bool,
    /// The tokenizer's token that ends sequences.
    pub eos_token_id: Option<TokenId>,
    /// Further ones of the model.
    pub extra_eos_token_ids: Vec<TokenId>,
    /// Those of the request.
    pub stop_token_ids: Vec<TokenId>,
    /// Stop strings; `None` where texts are not kept.
    pub stop: Option<Vec<String>>,
    /// `raw_logprobs` or `processed_logprobs`, see [`Sequence::has_sampled_logprobs`](super::Sequence::has_sampled_logprobs).
    pub logprobs_mode: String,
    /// Whether a sequence that went round in circles was ended.
    pub detects_repetition: bool,
    /// Whether the output had to keep to a grammar, to a budget for thoughts, or to one call.
    pub is_constrained: bool,
    /// Whether the request said through which experts tokens go.
    pub gives_experts: bool,
}

impl SamplingUsed {
    /// The sampling by `params`; `stop` are its stop strings where texts are kept, and `gives_experts` says whether the
    /// request said through which experts tokens go.
    pub fn new(params: &SamplingParams, stop: Option<&[String]>, gives_experts: bool) -> Self {
        Self {
            temperature: params.temperature,
            top_p: params.top_p,
            top_k: params.top_k,
            min_p: params.min_p,
            presence_penalty: params.presence_penalty,
            frequency_penalty: params.frequency_penalty,
            repetition_penalty: params.repetition_penalty,
            logit_bias: params.logit_bias.clone(),
            allowed_token_ids: params.allowed_token_ids.clone(),
            bad_words_token_ids: params.bad_words.clone(),
            seed: params.seed,
            max_tokens: params.max_tokens,
            min_tokens: params.min_tokens,
            ignore_eos: params.ignore_eos,
            eos_token_id: params.eos_token_id,
            extra_eos_token_ids: params.extra_eos_token_ids.clone(),
            stop_token_ids: params.stop_token_ids.clone(),
            stop: stop.map(<[String]>::to_vec),
            logprobs_mode: <&str>::from(params.logprobs_mode).to_owned(),
            detects_repetition: params.repetition_detection.is_some(),
            is_constrained: params.constraint.is_some(),
            gives_experts,
        }
    }

    /// The parameters by which the engine samples the same ids again, but for the constraint; `None` if the
    /// `logprobs_mode` is none that is known here. Stop strings and circles end sequences above the engine.
    pub fn params(&self) -> Option<SamplingParams> {
        Some(SamplingParams {
            logit_bias: self.logit_bias.clone(),
            allowed_token_ids: self.allowed_token_ids.clone(),
            bad_words: self.bad_words_token_ids.clone(),
            seed: self.seed,
            max_tokens: self.max_tokens,
            min_tokens: self.min_tokens,
            ignore_eos: self.ignore_eos,
            eos_token_id: self.eos_token_id,
            extra_eos_token_ids: self.extra_eos_token_ids.clone(),
            stop_token_ids: self.stop_token_ids.clone(),
            logprobs_mode: self.logprobs_mode.parse().ok()?,
            ..self.numbers()
        })
    }

    /// Whether the most probable tokens were taken rather than drawn.
    pub fn is_greedy(&self) -> bool {
        self.numbers().is_greedy()
    }

    /// Parameters with the numbers that shape the distribution, and nothing else.
    fn numbers(&self) -> SamplingParams {
        SamplingParams {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            repetition_penalty: self.repetition_penalty,
            ..SamplingParams::default()
        }
    }

    /// The fields that made the distribution that was sampled from another one than the model's own, each with its value where
    /// that is short. Stop strings, lengths and seeds are none of them: they choose no token.
    pub fn edits(&self) -> Vec<String> {
        let has_ends =
            self.eos_token_id.is_some() || !self.extra_eos_token_ids.is_empty() || !self.stop_token_ids.is_empty();
        let (mut used, mut off) = (self.numbers(), SamplingParams::default());
        let numbers = used.numbers_mut().into_iter().zip(off.numbers_mut());
        let numbers = numbers.filter(|((_, value), (_, off))| **value - **off != 0.0);
        let counts = [("top_k", self.top_k), ("min_tokens", if has_ends { self.min_tokens } else { 0 })];
        let counts = counts.into_iter().filter(|(_, value)| *value > 0);
        let lists = [
            ("logit_bias", self.logit_bias.iter().any(|(_, bias)| *bias != 0.0)),
            ("allowed_token_ids", self.allowed_token_ids.is_some()),
            ("bad_words", !self.bad_words_token_ids.is_empty()),
            ("a grammar, a budget for thoughts or a limit of one call", self.is_constrained),
        ];
        let lists = lists.into_iter().filter(|(_, is_on)| *is_on);
        let numbers = numbers.map(|((name, value), _)| format!("{name} {value}"));
        let counts = counts.map(|(name, value)| format!("{name} {value}"));
        numbers.chain(counts).chain(lists.map(|(name, _)| name.to_owned())).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sampling::LogprobsMode;

    proptest! {
        #[test]
        fn numbers_are_read_as_they_were_written(temperature in any::<f64>().prop_filter("finite", |number| number.is_finite())) {
            let used = SamplingUsed { temperature, ..SamplingUsed::new(&SamplingParams::default(), None, false) };
            let read: SamplingUsed = serde_json::from_str(&serde_json::to_string(&used).unwrap()).unwrap();
            prop_assert_eq!(read.temperature.to_bits(), temperature.to_bits());
        }
    }

    #[test]
    fn what_is_kept_samples_the_same_again() {
        let params = SamplingParams {
            temperature: 0.7,
            top_p: 0.9,
            top_k: 20,
            min_p: 0.01,
            presence_penalty: 0.1,
            frequency_penalty: -0.2,
            repetition_penalty: 1.1,
            logit_bias: vec![(3, 1.5)],
            allowed_token_ids: Some(vec![3, 4]),
            bad_words: vec![vec![5, 6]],
            seed: Some(7),
            max_tokens: 9,
            min_tokens: 2,
            ignore_eos: true,
            eos_token_id: Some(1),
            extra_eos_token_ids: vec![2],
            stop_token_ids: vec![8],
            logprobs_mode: LogprobsMode::Processed,
            ..SamplingParams::default()
        };
        let used = SamplingUsed::new(&params, None, false);
        assert_eq!(used.params(), Some(params));
        let unknown = SamplingUsed { logprobs_mode: "raw_logits".to_owned(), ..used };
        assert_eq!(unknown.params(), None);
    }

    #[test]
    fn numbers_that_are_not_at_their_default_are_edits() {
        let plain = SamplingUsed::new(&SamplingParams::default(), None, false);
        assert_eq!(plain.edits(), Vec::<String>::new());
        let edited = SamplingUsed { temperature: 0.7, top_k: 20, min_p: 0.01, repetition_penalty: 1.1, ..plain };
        assert_eq!(edited.edits(), ["temperature 0.7", "min_p 0.01", "repetition_penalty 1.1", "top_k 20"]);
    }
}
