//! mistral.rs as an engine of tito, exact ids in and out.
//!
//! It is a crate of its own, so that no other crate needs the packages of mistral.rs. It owns how mistral.rs is told
//! what to load and to compute. The rest is in [`tito_engine`]. The program uses [`MistralRsEngine`].
//!
//! mistral.rs computes logits and nothing else here. The `tap` samples, ends sequences and scores. The queue in front
//! lets in one sequence at a time: on a CPU, more would share one attention output, and on a GPU, they would be slower.
//! The tokenizer, templates, sampler, prefix cache and hub client of mistral.rs are not used. The list of models that
//! it may serve is in [`tito_engine::engine::compared`].

#![warn(unreachable_pub)]

mod alphabet;
mod error;
mod gguf;
mod load;
mod panics;
mod probe;
mod sequence;
mod shared;
mod spec;
mod tap;
#[cfg(test)]
mod tests;
mod weights;

use std::{
    any::Any,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use mistralrs_core::Request;
use tokio::{runtime::Handle, sync::mpsc};

use tito_engine::engine::{
    self, Engine, EngineError, EngineInfo, EngineLoad, Party, Reservation, SequenceRequest, Ticket, TokenStream,
    admission::Admission,
    backlog::{Backlog, Bounds},
};
use tito_sampling::{self as sampling, TokenId};

use self::{alphabet::Alphabet, load::Loaded, panics::Panics, shared::Shared};
pub use self::{
    error::LoadError,
    spec::{Dtype, LoadSpec, WeightsSource},
};

/// What may wait for clients. mistral.rs cannot let a sequence pause, so one that is not read is computed to its end. It is
/// ended where more than this waits for its client, or where too much waits over all and more for it than for clients that
/// read.
const UNREAD: Bounds = Bounds { sequence: 1 << 24, all: 1 << 28, spared: 1 << 20 };

/// A model served by mistral.rs.
pub struct MistralRsEngine {
    shared: Arc<Shared>,
    runtime: Handle,
}

impl MistralRsEngine {
    /// Loads a model and computes first tokens with it; takes seconds to minutes, and needs a tokio runtime.
    ///
    /// Panics of other threads are not printed meanwhile: the error says what mistral.rs panicked about.
    pub async fn load(spec: LoadSpec) -> Result<Self, LoadError> {
        let panics = Panics::keep();
        let loaded = Self::load_aloud(spec).await;
        loaded.map_err(|error| match error {
            LoadError::Engine(reason) => LoadError::Engine(panics.explain(&reason)),
            other => other,
        })
    }

    async fn load_aloud(spec: LoadSpec) -> Result<Self, LoadError> {
        let (vocab_size, max_model_len, max_waiting) = (spec.vocab_size, spec.max_model_len, spec.max_waiting);
        let unproven = spec.unproven.clone();
        let alphabet = Alphabet::new(vocab_size)
            .ok_or_else(|| LoadError::Unsupported(format!("a vocabulary of {vocab_size} tokens")))?;
        let Loaded { engine, requests, device, dtype } = load::load(spec, alphabet).await?;
        probe::probe(&requests, vocab_size, max_model_len).await?;
        let info = EngineInfo { engine: "mistralrs", device, dtype, vocab_size, max_model_len, unproven };
        Ok(Self::over(info, alphabet, max_waiting, requests, Box::new(engine)))
    }

    /// An engine that takes `requests` as long as `owner` lives. Needs a tokio runtime.
    fn over(
        info: EngineInfo,
        alphabet: Alphabet,
        max_waiting: usize,
        requests: mpsc::Sender<Request>,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        let admission = Arc::new(Admission::new(1, max_waiting));
        let backlog = Backlog::new(UNREAD);
        let shared = Shared { info, alphabet, admission, backlog, requests, failure: OnceLock::new(), _owner: owner };
        Self { shared: Arc::new(shared), runtime: Handle::current() }
    }

    fn begin(&self, ticket: Ticket, request: SequenceRequest) -> Result<TokenStream, EngineError> {
        self.shared.alive()?;
        self.shared.info.check(&request, self)?;
        let arrived = ticket.arrived;
        // A thread that ended meanwhile has closed the queue, and is the reason.
        let place = self.shared.admission.enter(ticket).map_err(|error| self.shared.alive().err().unwrap_or(error))?;
        // A sequence that has no room ends: there is nothing to tell it when there is some again.
        let (outputs, stream) = self.shared.backlog.channel(request.prompt_token_ids.len(), arrived, || ());
        let outputs = outputs.timed(request.timed);
        self.runtime.spawn(sequence::run(Arc::clone(&self.shared), place, request, outputs));
        Ok(stream.boxed())
    }
}

impl Engine for MistralRsEngine {
    fn reserve(&self, party: Option<Party>, sequences: usize) -> Result<Reservation, EngineError> {
        self.shared.alive()?;
        self.shared.admission.reserve(party, sequences)
    }

    fn seats(&self) -> usize {
        self.shared.admission.seats()
    }

    fn start(&self, ticket: Ticket, request: SequenceRequest) -> TokenStream {
        self.begin(ticket, request).unwrap_or_else(|error| stream::once(async { Err(error) }).boxed())
    }

    fn info(&self) -> &EngineInfo {
        &self.shared.info
    }

    fn load(&self) -> EngineLoad {
        self.shared.admission.load()
    }

    fn health(&self) -> Result<(), EngineError> {
        self.shared.alive()?;
        self.shared.admission.health()
    }

    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ()> {
        self.shared.admission.shutdown(grace).boxed()
    }

    fn scores_candidates(&self) -> bool {
        false
    }
}

impl fmt::Debug for MistralRsEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MistralRsEngine")
            .field("info", &self.shared.info)
            .field("load", &self.load())
            .finish_non_exhaustive()
    }
}
