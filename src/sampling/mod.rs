//! Logits to token and log-probs: pure, seeded, and the same for every engine.
//!
//! Owns penalties, masks, truncation, the random draw, log-probs and the token-level end of a sequence.
//! Refuses text (stop strings belong to `generation`) and tensors of a backend (it reads `&[f32]`).

mod params;
mod sampler;

pub use params::{Logprobs, LogprobsMode, SamplingError, SamplingParams};
pub use sampler::{SampledToken, SequenceSampler, Step, TopLogprob, score_token};

use crate::TokenId;

/// Why a sequence ended, as far as tokens can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The tokenizer's own end-of-sequence token was sampled (vLLM: `stop`, `stop_reason: null`).
    Eos,
    /// Another stop token was sampled: one of `generation_config.json` or of the request (vLLM: `stop`, `stop_reason: <id>`).
    StopToken(TokenId),
    /// `max_tokens` tokens were sampled.
    Length,
    /// The engine ended the sequence early, what was sampled so far is valid.
    Abort,
}
