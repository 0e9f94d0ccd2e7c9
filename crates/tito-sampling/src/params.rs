//! What a request asks of the sampler.

use strum::{EnumString, IntoStaticStr};

use super::{FinishReason, RepetitionDetection, SamplingError, SharedConstraint, error::python};
use crate::TokenId;

/// A temperature over 0 is raised to this (vLLM's `_MAX_TEMP`).
const LEAST_TEMPERATURE: f64 = 0.01;

/// Which log-probs accompany each sampled token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Logprobs {
    /// The sampled token's and those of the `n` most probable tokens (0: the sampled token's only).
    Top(usize),
    /// The log-probs of the whole vocabulary.
    All,
    /// The sampled token's and those of the given tokens, in the given order.
    Ids(Vec<TokenId>),
}

/// Which distribution log-probs describe; the names are vLLM's `--logprobs-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, EnumString, IntoStaticStr)]
pub enum LogprobsMode {
    /// The model's own: log-softmax of the logits before penalties, masks and temperature.
    #[default]
    #[strum(serialize = "raw_logprobs")]
    Raw,
    /// The one that was sampled from: after penalties, masks, temperature and truncation; what was cut off has -9999.
    #[strum(serialize = "processed_logprobs")]
    Processed,
}

/// Everything that decides the next token, given logits and history. Samplers and engines take only what
/// [`SamplingParams::validated`] makes of it.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// In [0, 2]; 0 is greedy, and then `top_p`, `top_k` and `min_p` do not apply.
    pub temperature: f64,
    /// In (0, 1]; 1 is off. Keeps the fewest most probable tokens that together reach this probability.
    pub top_p: f64,
    /// 0 is off. Keeps the `top_k` most probable tokens and those that are exactly as probable as the last of them.
    pub top_k: usize,
    /// In [0, 1]; 0 is off. Keeps tokens at least this probable relative to the most probable one.
    pub min_p: f64,
    /// In [-2, 2]; over output tokens.
    pub presence_penalty: f64,
    /// In [-2, 2]; over output tokens.
    pub frequency_penalty: f64,
    /// Over 0; 1 is off; over prompt and output tokens.
    pub repetition_penalty: f64,
    /// Added to the logits of the given tokens; clamped to [-100, 100], the last entry of a token counts.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Only these tokens may be sampled.
    pub allowed_token_ids: Option<Vec<TokenId>>,
    /// What the output must keep to, and where it may end.
    pub constraint: Option<SharedConstraint>,
    /// Sequences that the output may not complete; what of them stands in the prompt does not count.
    pub bad_words: Vec<Vec<TokenId>>,
    /// The same seed gives the same ids; `None` draws a fresh one.
    pub seed: Option<u64>,
    /// At most this many tokens are sampled; at least 1.
    pub max_tokens: usize,
    /// Before this many tokens no end-of-sequence or stop token is sampled, whatever `ignore_eos` says, unless a structured
    /// output leaves no other token.
    pub min_tokens: usize,
    /// End-of-sequence tokens do not end the sequence; `stop_token_ids` still do.
    pub ignore_eos: bool,
    /// The tokenizer's end-of-sequence token.
    pub eos_token_id: Option<TokenId>,
    /// Further end-of-sequence tokens, of `generation_config.json`; `ignore_eos` disables them too.
    pub extra_eos_token_ids: Vec<TokenId>,
    /// Stop tokens of the request.
    pub stop_token_ids: Vec<TokenId>,
    /// `None` asks for no alternatives; the sampled token's own log-prob is always computed.
    pub logprobs: Option<Logprobs>,
    /// See [`LogprobsMode`].
    pub logprobs_mode: LogprobsMode,
    /// `Some(most)` has each token come with the ids of all tokens that it was drawn from, of which there are at most `most`.
    pub sampling_mask: Option<usize>,
    /// A sequence that loops is ended; the sampler leaves that to `generation`.
    pub repetition_detection: Option<RepetitionDetection>,
}

impl Default for SamplingParams {
    /// vLLM's: the model's own distribution, 16 tokens, no log-probs.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            logit_bias: Vec::new(),
            allowed_token_ids: None,
            constraint: None,
            bad_words: Vec::new(),
            seed: None,
            max_tokens: 16,
            min_tokens: 0,
            ignore_eos: false,
            eos_token_id: None,
            extra_eos_token_ids: Vec::new(),
            stop_token_ids: Vec::new(),
            logprobs: None,
            logprobs_mode: LogprobsMode::Raw,
            sampling_mask: None,
            repetition_detection: None,
        }
    }
}

impl SamplingParams {
    /// Below this, a temperature is greedy (vLLM's `_SAMPLING_EPS`).
    const GREEDY_BELOW: f64 = 1e-5;

    /// Whether the most probable token is taken rather than drawn.
    pub fn is_greedy(&self) -> bool {
        self.temperature < Self::GREEDY_BELOW
    }

    /// The numbers that may have a fraction, under their names in requests. At its default, none of them changes anything.
    pub fn numbers_mut(&mut self) -> [(&'static str, &mut f64); 6] {
        [
            ("temperature", &mut self.temperature),
            ("top_p", &mut self.top_p),
            ("min_p", &mut self.min_p),
            ("presence_penalty", &mut self.presence_penalty),
            ("frequency_penalty", &mut self.frequency_penalty),
            ("repetition_penalty", &mut self.repetition_penalty),
        ]
    }

    /// Every token that `min_tokens` holds back; may repeat a token.
    pub(super) fn end_token_ids(&self) -> impl Iterator<Item = TokenId> {
        self.eos_token_id.iter().chain(&self.extra_eos_token_ids).chain(&self.stop_token_ids).copied()
    }

    /// Whether a sequence ends with `id`, its `sampled`-th token. As in vLLM, a stop token wins over `max_tokens`.
    pub fn finish_after(&self, id: TokenId, sampled: usize) -> Option<FinishReason> {
        if !self.ignore_eos && self.eos_token_id == Some(id) {
            Some(FinishReason::Eos)
        } else if self.stop_token_ids.contains(&id) || (!self.ignore_eos && self.extra_eos_token_ids.contains(&id)) {
            Some(FinishReason::StopToken(id))
        } else {
            (sampled >= self.max_tokens).then_some(FinishReason::Length)
        }
    }

    /// Checks numbers against their ranges, and settles them: a temperature between 0 and 0.01 becomes 0.01, greedy
    /// sampling has no truncation. Sentences and their order are vLLM's.
    pub(super) fn settle_numbers(&mut self) -> Result<(), SamplingError> {
        if self.temperature > 0.0 && self.temperature < LEAST_TEMPERATURE {
            self.temperature = LEAST_TEMPERATURE;
        }
        self.check_penalties()?;
        self.check_distribution()?;
        if self.is_greedy() {
            (self.top_p, self.top_k, self.min_p) = (1.0, 0, 0.0);
        }
        Ok(())
    }

    fn check_penalties(&self) -> Result<(), SamplingError> {
        let additive = [("presence_penalty", self.presence_penalty), ("frequency_penalty", self.frequency_penalty)];
        for (name, value) in additive {
            if !(-2.0..=2.0).contains(&value) {
                return Err(SamplingError::unnamed(format!("{name} must be in [-2, 2], got {}.", python(value))));
            }
        }
        let repetition = self.repetition_penalty;
        if !repetition.is_finite() {
            let message = format!("repetition_penalty must be a finite number, got {}.", python(repetition));
            return Err(SamplingError::unnamed(message));
        }
        if repetition <= 0.0 {
            let message = format!("repetition_penalty must be greater than zero, got {}.", python(repetition));
            return Err(SamplingError::unnamed(message));
        }
        Ok(())
    }

    fn check_distribution(&self) -> Result<(), SamplingError> {
        let temperature = self.temperature;
        let rule = if !temperature.is_finite() {
            Some("a finite number")
        } else if temperature < 0.0 {
            Some("non-negative")
        } else if temperature > 2.0 {
            Some("in [0, 2]")
        } else {
            None
        };
        if let Some(rule) = rule {
            let value = python(temperature);
            return Err(SamplingError::named(
                "temperature",
                &format!("temperature must be {rule}, got {value}."),
                value,
            ));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            let value = python(self.top_p);
            return Err(SamplingError::named("top_p", &format!("top_p must be in (0, 1], got {value}."), value));
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return Err(SamplingError::unnamed(format!("min_p must be in [0, 1], got {}.", python(self.min_p))));
        }
        Ok(())
    }
}
