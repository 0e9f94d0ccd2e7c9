//! Why no token could be sampled.

use crate::TokenId;

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
