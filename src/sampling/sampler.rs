//! One sequence's sampler.

use std::sync::Arc;

use super::{FinishReason, SamplingParams};
use crate::TokenId;

/// A token and its log-prob among the alternatives of one position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopLogprob {
    /// The token.
    pub id: TokenId,
    /// Natural logarithm, at least -9999.
    pub logprob: f32,
    /// 1 for the most probable token.
    pub rank: u32,
}

/// A sampled (or, for prompt log-probs, given) token.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledToken {
    /// The token.
    pub id: TokenId,
    /// Natural logarithm, at least -9999.
    pub logprob: f32,
    /// 1 for the most probable token.
    pub rank: u32,
    /// In rank order, without the sampled token put first (that is presentation).
    pub top_logprobs: Vec<TopLogprob>,
}

/// What one position gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The token, also when it is a stop token.
    pub token: SampledToken,
    /// Set when the sequence ends with this token.
    pub finish: Option<FinishReason>,
}

/// Samples one sequence, position by position.
#[derive(Debug)]
pub struct SequenceSampler {}

impl SequenceSampler {
    /// `params` are validated; `fallback_seed` seeds the draw when `params.seed` is `None`.
    pub fn new(params: Arc<SamplingParams>, prompt_token_ids: Arc<[TokenId]>, fallback_seed: u64) -> Self {
        let _ = (params, prompt_token_ids, fallback_seed);
        Self {}
    }

    /// Samples the next token from its logits, which are used as scratch space.
    pub fn step(&mut self, logits: &mut [f32]) -> Step {
        let _ = logits;
        unimplemented!()
    }
}

/// The log-prob of a given token: what `prompt_logprobs` and `echo` report.
pub fn score_token(logits: &[f32], id: TokenId, top: usize) -> SampledToken {
    let _ = (logits, id, top);
    unimplemented!()
}
