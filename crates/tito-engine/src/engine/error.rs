//! Why an engine gives no more tokens.

use crate::sampling::SampleError;

/// Why a generation could not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The request cannot be served by this engine, whatever its load.
    #[error("{0}")]
    Unsupported(String),
    /// The request's own masks, penalties or biases left nothing to sample.
    #[error("the request cannot be sampled: {0}")]
    Unsampleable(SampleError),
    /// Too many requests wait already.
    #[error("the engine is busy and cannot accept new requests")]
    Overloaded,
    /// The request has more sequences than there is room for in an engine without any other request.
    #[error("the request has {sequences} sequences, and the engine has room for {most}")]
    TooManySequences {
        /// How many it has.
        sequences: usize,
        /// How many may run and wait together.
        most: usize,
    },
    /// The engine was told to stop, and takes nothing more.
    #[error("the server is stopping")]
    ShutDown,
    /// Its client did not read what was sampled for it for so long that it was ended.
    #[error("the client did not read its stream for too long, and the generation was ended")]
    Unread,
    /// Whoever trains the model has paused the server.
    #[error("Generation is paused. Please retry after it resumes.")]
    Paused,
    /// The weights were given back to the system, or lost by an update that failed.
    #[error("the model has no weights now: {missing} tensors are to be sent before anything can be sampled")]
    WithoutWeights {
        /// How many tensors are missing.
        missing: usize,
    },
    /// What was generated could not be captured by whoever asked for it; the text says why.
    #[error("the answer could not be captured: {0}")]
    Uncaptured(String),
    /// The model computes logits that no probability can be made of: whoever sent its weights has to send others.
    #[error(
        "the model returned a logit that is not a number or is infinite: its weights are not finite, or far too large"
    )]
    NonFiniteLogits,
    /// The engine failed; the text is for the log.
    #[error("engine failure: {0}")]
    Failed(String),
}

impl From<SampleError> for EngineError {
    fn from(error: SampleError) -> Self {
        match error {
            SampleError::NothingLeft
            | SampleError::EditOverflow
            | SampleError::MaskTooLong { .. }
            | SampleError::Unfollowable(_) => Self::Unsampleable(error),
            SampleError::NonFiniteLogits => Self::NonFiniteLogits,
            SampleError::OutOfVocabulary { .. } => Self::Failed(error.to_string()),
        }
    }
}
