//! Why parameters cannot be honoured, and why no token could be sampled.

use crate::TokenId;

/// A parameter that cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SamplingError {
    /// The request field at fault; `None` where vLLM does not name it.
    pub param: Option<&'static str>,
    /// vLLM's sentence, complete with its ` (parameter=…, value=…)`.
    pub message: String,
}

impl SamplingError {
    pub(super) fn unnamed(message: String) -> Self {
        Self { param: None, message }
    }

    pub(super) fn named(param: &'static str, message: &str, value: impl std::fmt::Display) -> Self {
        Self { param: Some(param), message: format!("{message} (parameter={param}, value={value})") }
    }
}

/// A position that cannot be sampled or scored; the sequence cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    /// The model's logits contain NaN or +infinity, so no probability is defined. (-infinity is a masked token.)
    #[error("the model returned a logit that is not a number or is infinite")]
    NonFiniteLogits,
    /// Penalties or biases pushed a logit out of the range of `f32`.
    #[error("a penalty or bias pushed a logit out of range")]
    EditOverflow,
    /// The masks of the request, or the model itself, gave every token probability zero.
    #[error("no token is left to sample: every token is masked")]
    NothingLeft,
    /// What a structured output must keep to could not be followed further.
    #[error("the structured output cannot be followed: {0}")]
    Unfollowable(&'static str),
    /// The token to score is not one that the model has a logit for.
    #[error("token id {id} is out of the model's vocabulary of {vocab_size}")]
    OutOfVocabulary {
        /// The token.
        id: TokenId,
        /// Width of the logits.
        vocab_size: usize,
    },
}
