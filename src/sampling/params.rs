//! What a request asks of the sampler.

use crate::TokenId;

/// Which log-probs accompany each sampled token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Logprobs {
    /// The sampled token's and those of the `n` most probable tokens (0: the sampled token's only).
    Top(usize),
    /// Those of the whole vocabulary.
    All,
    /// The sampled token's and those of the given tokens.
    Ids(Vec<TokenId>),
}

/// Which distribution log-probs describe; the names are vLLM's `--logprobs-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogprobsMode {
    /// The model's own: log-softmax of the logits before penalties, masks and temperature.
    #[default]
    Raw,
    /// The one that was sampled from: after penalties, masks, temperature and truncation.
    Processed,
}

/// Everything that decides the next token, given logits and history. Build it, then pass it through [`SamplingParams::validated`].
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy.
    pub temperature: f64,
    /// In (0, 1]; 1 is off.
    pub top_p: f64,
    /// 0 is off.
    pub top_k: usize,
    /// In [0, 1]; 0 is off.
    pub min_p: f64,
    /// In [-2, 2]; over output tokens.
    pub presence_penalty: f64,
    /// In [-2, 2]; over output tokens.
    pub frequency_penalty: f64,
    /// Over 0; 1 is off; over prompt and output tokens.
    pub repetition_penalty: f64,
    /// Added to the logits of the given tokens.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Only these tokens may be sampled.
    pub allowed_token_ids: Option<Vec<TokenId>>,
    /// Sequences that may not be completed.
    pub bad_words: Vec<Vec<TokenId>>,
    /// The same seed gives the same ids; `None` draws a fresh one.
    pub seed: Option<u64>,
    /// At most this many tokens are sampled; at least 1.
    pub max_tokens: usize,
    /// Before this many tokens no stop token is sampled.
    pub min_tokens: usize,
    /// The end-of-sequence and stop tokens do not end the sequence... only request `stop_token_ids` do.
    pub ignore_eos: bool,
    /// The tokenizer's end-of-sequence token.
    pub eos_token_id: Option<TokenId>,
    /// Further end-of-sequence tokens, of `generation_config.json`; `ignore_eos` disables them too.
    pub extra_eos_token_ids: Vec<TokenId>,
    /// Stop tokens of the request.
    pub stop_token_ids: Vec<TokenId>,
    /// `None`: no log-probs are reported... the sampled token's is always computed.
    pub logprobs: Option<Logprobs>,
    /// See [`LogprobsMode`].
    pub logprobs_mode: LogprobsMode,
}

/// A parameter that cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SamplingError {
    /// The request field at fault.
    pub param: &'static str,
    /// vLLM's sentence.
    pub message: String,
}

impl SamplingParams {
    /// Checks every field against its range and against a vocabulary of `vocab_size` tokens.
    pub fn validated(self, vocab_size: usize) -> Result<Self, SamplingError> {
        let _ = vocab_size;
        Ok(self)
    }
}
