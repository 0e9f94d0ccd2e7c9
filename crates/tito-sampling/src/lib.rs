//! Logits to token and log-probs: pure, seeded, and the same for every engine.
//!
//! Owns penalties, masks, truncation, the random draw, log-probs and the token-level end of a sequence.
//! Refuses text (stop strings belong to `generation`) and tensors of a backend (it reads `&[f32]`).
//!
//! # Order
//! That of vLLM's V1 sampler, which the documentation of [`Sampler`] lists and its `forward` follows:
//!
//! 1. raw log-probs, from the untouched logits
//! 2. the constraint of a structured output, `allowed_token_ids`, `bad_words`, `min_tokens`, `logit_bias`
//! 3. penalties: repetition over prompt and output, then frequency and presence over output
//! 4. greedy: the best token, the lowest id among equals, and nothing below applies
//! 5. temperature, `min_p`, `top_k` (logits that equal the `k`-th are all kept), `top_p`
//! 6. the draw, then the end of the sequence (a stop token wins over `max_tokens`)
//!
//! # Reproducible
//! The draw at a position depends on the seed and the position alone, not on other sequences and not on which
//! log-probs were asked for. Sums run in a fixed order and `exp` is our own, so that every platform gives the same ids.
//!
//! # Deliberate deviations from vLLM
//! * Arithmetic on probabilities is in `f64`, rounded once; vLLM's is in `f32`.
//! * Seeds give other ids than vLLM's, whose generators are those of the device.
//! * Equal probabilities at the edge of `top_p` and of the best `n` are told apart by id, lowest first; vLLM leaves
//!   that to an unstable sort.
//! * Logits that are NaN or infinite, and masks that leave nothing, are errors; vLLM samples some token.
//!
//! [`Sampler`]: https://github.com/vllm-project/vllm/blob/main/vllm/v1/sample/sampler.py

#![cfg_attr(feature = "internals", warn(unreachable_pub))]
#![cfg_attr(test, expect(clippy::float_cmp, reason = "results are exact to the bit"))]

mod best;
mod candidates;
mod constrained;
mod constraint;
mod device_draw;
mod draw;
mod edits;
mod error;
mod guess;
mod guidance;
mod log_probs;
mod masks;
mod params;
mod penalties;
mod repetition;
mod row_edits;
mod sampler;
mod skim;
mod softmax;
#[cfg(test)]
mod tests;
mod token;
mod truncation;
mod validation;

pub use candidates::Candidates;
pub use constraint::{ConstraintState, Foresight, SharedConstraint, TokenConstraint, TokenMask};
pub use device_draw::{DeviceDraw, DevicePick, Drawn};
pub use error::{SampleError, SamplingError};
#[cfg(any(test, feature = "internals"))]
pub use log_probs::score_token;
pub use log_probs::{SampledToken, Score, TopLogprob, score};
pub use params::{Logprobs, LogprobsMode, SamplingParams};
pub use penalties::PenaltyFactors;
pub use repetition::RepetitionDetection;
pub use row_edits::RowEdits;
pub use sampler::{SequenceSampler, Step};
#[cfg(feature = "cuda")]
pub use skim::bits_per_logit;
pub use skim::{OwnedSummary, SKIM_BLOCK, Skim, Skimmed, Summary};
pub use token::{FinishReason, TokenId};
pub use validation::ValidSamplingParams;
