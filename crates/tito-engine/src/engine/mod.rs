//! Token ids in, sampled tokens out.
//!
//! Owns the interface to whatever runs the model. Refuses text, chat and HTTP.

mod adapters;
pub mod admission;
pub mod backlog;
pub mod cache_events;
mod check;
pub mod compared;
mod control;
mod error;
pub mod gpu;
mod images;
mod meters;
pub mod native;
mod request_times;
mod reservation;
mod routes;
pub mod scripted;
mod seat_queue;

use std::{sync::Arc, time::Duration};

use futures::{
    StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};

#[cfg(any(test, feature = "internals"))]
pub use self::meters::EngineMeters;
pub use self::{
    adapters::{Adapter, AdapterId, AdapterLimits, AdapterLoad, EngineAdapters},
    control::{
        Answer, EngineControl, Memory, NewWeights, OnWeightsChange, TensorInfo, UndoPolicy, UpdateError, Visit,
        WeightVersion, Written,
    },
    error::EngineError,
    images::{ImageFrame, ImageReading, PromptImage},
    request_times::RequestTimes,
    reservation::{Reservation, Ticket},
    routes::{GivenRoutes, RouteArray, RouteError, RouteShape, Routes, Routing},
    seat_queue::Party,
};
use crate::TokenId;
pub use crate::{
    sampling::{Candidates, FinishReason, SampledToken, SamplingParams, ValidSamplingParams},
    weights::{TensorChanges, WeightDtype, WeightTensor},
};

/// One sequence to generate.
#[derive(Debug, Clone)]
pub struct SequenceRequest {
    /// The prompt, verbatim: nothing is added to it.
    pub prompt_token_ids: Arc<[TokenId]>,
    /// With `max_tokens` such that prompt and output fit the context.
    pub sampling: Arc<ValidSamplingParams>,
    /// Report the log-probs of the prompt with this many alternatives a position, before the first sampled token.
    pub prompt_logprobs: Option<usize>,
    /// Report, before the first sampled token, the log-probs of these tokens at positions of the prompt.
    pub candidates: Option<Arc<Candidates>>,
    /// Requests share cached prefixes only with requests of the same salt.
    pub cache_salt: Option<Arc<str>>,
    /// The adapter that it goes through; `None` for the base. Only for an engine that [serves
    /// adapters](Engine::adapters).
    pub adapter: Option<Arc<Adapter>>,
    /// What is wanted of the experts that its tokens go through.
    pub routing: Routing,
    /// The images of the prompt, in its order. Only for an engine that [reads images](Engine::images).
    pub images: Arc<[PromptImage]>,
    /// Report before each token how long the sequence was in each phase, up to that token.
    pub timed: bool,
}

impl SequenceRequest {
    /// A sequence of which nothing but its tokens is wanted.
    pub fn new(prompt_token_ids: impl Into<Arc<[TokenId]>>, sampling: ValidSamplingParams) -> Self {
        Self {
            prompt_token_ids: prompt_token_ids.into(),
            sampling: Arc::new(sampling),
            prompt_logprobs: None,
            candidates: None,
            cache_salt: None,
            adapter: None,
            routing: Routing::default(),
            images: Arc::default(),
            timed: false,
        }
    }
}

/// What an engine says about a prompt once it has computed it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PromptOutput {
    /// Tokens of the prompt that were not computed again, because a cache had them.
    pub cached_tokens: usize,
    /// Log-probs of the prompt's tokens from the second one on (the first has none), where they were asked for:
    /// `prompt_token_ids.len() - 1` entries, else none.
    pub logprobs: Vec<SampledToken>,
    /// Log-probs of candidates, position by position, where they were asked for.
    pub candidates: Vec<f32>,
}

/// What a generation yields, in order: at most one `Prompt`, tokens, exactly one `Finished`.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineOutput {
    /// The prompt is computed. Always there where its log-probs were asked for; otherwise an engine may leave it out.
    Prompt(PromptOutput),
    /// The weights that compute the tokens from the next one on; before the first token, and whenever they change. An
    /// engine whose weights never change leaves it out.
    Weights(WeightsInUse),
    /// The experts of the tokens that were computed since the last one was sampled, before the next one, where they were
    /// asked for: of the prompt from the position that the request names, then of one token each. They are those of the
    /// computation that the next token comes from, and stay so if the token is computed anew later.
    Routes(Routes),
    /// How long the sequence was in each phase when the next token was sampled, where that was asked for. Each one takes the
    /// place of the one before.
    Times(RequestTimes),
    /// The next sampled token; stop tokens are reported too.
    Token(SampledToken),
    /// The end; nothing follows.
    Finished(FinishReason),
}

/// The weights that compute a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightsInUse {
    /// The weights; where an adapter computes, they are called what the adapter is.
    pub version: Arc<WeightVersion>,
    /// Where an adapter computes, what the weights of the base are called.
    pub base: Option<Arc<str>>,
    /// Whether they read keys and values that older weights wrote, see [`OnWeightsChange::Reuse`].
    pub reuse_older_keys: bool,
}

/// A running generation. Dropping it aborts the generation.
pub type TokenStream = BoxStream<'static, Result<EngineOutput, EngineError>>;

/// What is served, for people and for `/v1/models`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineInfo {
    /// `native`, `mistralrs`, `scripted`.
    pub engine: &'static str,
    /// `cpu`, `cuda:0`.
    pub device: String,
    /// The arithmetic's type: `f32`, `bf16`, or a GGUF quantisation.
    pub dtype: String,
    /// Width of the logits, which may exceed the tokenizer's vocabulary.
    pub vocab_size: usize,
    /// The longest sequence, prompt and output together, in tokens.
    pub max_model_len: usize,
    /// Why nobody knows whether the engine computes this model right; `None` where tests have compared it.
    pub unproven: Option<String>,
}

/// What the engine is doing right now.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EngineLoad {
    /// Sequences being computed.
    pub running: usize,
    /// Sequences in the queue.
    pub waiting: usize,
    /// Sequences that wait until their clients read what was sampled for them, or until a slow structured output is
    /// followed; they have no seat.
    pub paused: usize,
    /// The part of the cache of keys and values that is in use, from 0 to 1; 0 where there is no cache.
    pub kv_cache_usage: f64,
}

/// Token-in/token-out inference.
///
/// What an engine has sampled and nobody has read yet is bounded, for each sequence and over all. Beyond that, a sequence
/// pauses, without a seat or memory that others need, and goes on with the same tokens once it is read again. An engine
/// that cannot pause a sequence ends it with [`EngineError::Unread`].
pub trait Engine: Send + Sync + 'static {
    /// Takes places for all `sequences` of a request of `party`, or none: [`EngineError::Overloaded`] where there are
    /// not enough now, and [`EngineError::TooManySequences`] where there never are. Sequences take turns by party and by request, see [`Party`].
    fn reserve(&self, party: Option<Party>, sequences: usize) -> Result<Reservation, EngineError>;

    /// Starts one generation in its place; dropping the stream aborts it, queued or running. Errors are items of the
    /// stream. While weights are lost, it waits for them, as those do that run.
    fn start(&self, ticket: Ticket, request: SequenceRequest) -> TokenStream;

    /// Starts one generation that is a request of its own, in the place that it gets. It is refused while weights are lost.
    fn generate(&self, request: SequenceRequest) -> TokenStream {
        let missing = self.control().map_or(0, EngineControl::lacking);
        if missing > 0 {
            return stream::once(async move { Err(EngineError::WithoutWeights { missing }) }).boxed();
        }
        match self.reserve(None, 1).map(|mut reservation| reservation.take()) {
            Ok(Some(ticket)) => self.start(ticket, request),
            Ok(None) => unreachable!("one place was taken"),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    /// The most sequences that are computed at a time.
    fn seats(&self) -> usize;

    /// What is served; does not change.
    fn info(&self) -> &EngineInfo;

    /// Sequences in the engine now.
    fn load(&self) -> EngineLoad;

    /// `Err` with the reason once the engine cannot serve any more.
    fn health(&self) -> Result<(), EngineError>;

    /// Aborts every sequence and waits, at most `grace`, until the engine is idle.
    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ()>;

    /// The mixtures of experts whose choices requests may see or give; `None` where there are none.
    fn route_shape(&self) -> Option<&RouteShape> {
        None
    }

    /// Whether it scores the tokens that a request names at positions of its prompt, its [`Candidates`].
    fn scores_candidates(&self) -> bool {
        true
    }

    /// How it reads images; `None` where it reads none.
    fn images(&self) -> Option<ImageReading> {
        None
    }

    /// What it can do with adapters; `None` where it serves none.
    fn adapters(&self) -> Option<&dyn EngineAdapters> {
        None
    }

    /// What a training loop can do to it; `None` where it can do nothing.
    fn control(&self) -> Option<&dyn EngineControl> {
        None
    }

    /// The weights that sample now, also of an engine whose weights nobody can change.
    fn current_weights(&self) -> Arc<WeightVersion> {
        self.control().map_or_else(WeightVersion::first, EngineControl::weights)
    }
}
