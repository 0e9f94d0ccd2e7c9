//! Token ids in, sampled tokens out.
//!
//! Owns the boundary to whatever runs the model. Refuses text, chat and HTTP.

mod admission;
mod check;
#[cfg(feature = "mistralrs")]
pub mod mistralrs;
#[cfg_attr(not(test), expect(dead_code, reason = "no engine runs on the kernels yet"))]
mod native;
pub mod scripted;

use std::{sync::Arc, time::Duration};

use futures::stream::BoxStream;

pub use crate::sampling::{FinishReason, SampledToken, SamplingParams};
use crate::{TokenId, sampling::SampleError};

/// One sequence to generate.
#[derive(Debug, Clone)]
pub struct GenerateRequest {
    /// The prompt, verbatim: nothing is added to it.
    pub prompt_token_ids: Arc<[TokenId]>,
    /// Validated, with `max_tokens` such that prompt and output fit the context.
    pub sampling: Arc<SamplingParams>,
    /// Report the log-probs of the prompt with this many alternatives a position, before the first sampled token.
    pub prompt_logprobs: Option<usize>,
}

/// What a generation yields, in order: at most one `Prompt`, tokens, exactly one `Finished`.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineOutput {
    /// Log-probs of the prompt's tokens from the second one on (the first has none): `prompt_token_ids.len() - 1` entries.
    Prompt(Vec<SampledToken>),
    /// The next sampled token; stop tokens are reported too.
    Token(SampledToken),
    /// The end; nothing follows.
    Finished(FinishReason),
}

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
    /// The engine failed; the text is for the log.
    #[error("engine failure: {0}")]
    Failed(String),
}

impl From<SampleError> for EngineError {
    fn from(error: SampleError) -> Self {
        match error {
            SampleError::NothingLeft | SampleError::EditOverflow => Self::Unsampleable(error),
            SampleError::NonFiniteLogits | SampleError::OutOfVocabulary { .. } => Self::Failed(error.to_string()),
        }
    }
}

/// A running generation. Dropping it aborts the generation.
pub type TokenStream = BoxStream<'static, Result<EngineOutput, EngineError>>;

/// What is served, for people and for `/v1/models`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineInfo {
    /// `mistralrs`, `scripted`.
    pub engine: &'static str,
    /// `cpu`, `cuda:0`.
    pub device: String,
    /// The arithmetic's type: `f32`, `bf16`, or a GGUF quantisation.
    pub dtype: String,
    /// Width of the logits, which may exceed the tokenizer's vocabulary.
    pub vocab_size: usize,
    /// The longest sequence, prompt and output together, in tokens.
    pub max_model_len: usize,
}

/// What the engine is doing right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineLoad {
    /// Sequences being computed.
    pub running: usize,
    /// Sequences in the queue.
    pub waiting: usize,
}

/// Token-in/token-out inference.
pub trait Engine: Send + Sync + 'static {
    /// Starts one generation; dropping the stream aborts it, queued or running. Errors are items of the stream.
    fn generate(&self, request: GenerateRequest) -> TokenStream;

    /// What is served; does not change.
    fn info(&self) -> &EngineInfo;

    /// Sequences in the engine now.
    fn load(&self) -> EngineLoad;

    /// `Err` with the reason once the engine cannot serve any more.
    fn health(&self) -> Result<(), EngineError>;

    /// Aborts every sequence and waits, at most `grace`, until the engine is idle.
    fn shutdown(&self, grace: Duration) -> futures::future::BoxFuture<'_, ()>;
}
