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
mod gguf;
mod load;
mod panics;
mod probe;
mod sequence;
mod tap;
#[cfg(test)]
mod tests;
mod weights;

use std::{
    any::Any,
    fmt, io,
    path::PathBuf,
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

use self::{alphabet::Alphabet, load::Loaded, panics::Panics};

/// How many sequences may wait. The next one gets [`EngineError::Overloaded`].
const MAX_WAITING: usize = 65_536;

/// What may wait for clients. mistral.rs cannot let a sequence pause, so one that is not read is computed to its end. It is
/// ended where more than this waits for its client, or where too much waits over all and more for it than for clients that
/// read.
const UNREAD: Bounds = Bounds { sequence: 1 << 24, all: 1 << 28, spared: 1 << 20 };

/// Where weights are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WeightsSource {
    /// A GGUF file.
    Gguf(PathBuf),
    /// A directory with `config.json` and safetensors.
    Directory(PathBuf),
}

/// The type of the arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dtype {
    /// `float32` on a CPU, `bfloat16` on a GPU.
    #[default]
    Auto,
    /// `float32`.
    F32,
    /// `float16`; on GPUs only.
    F16,
    /// `bfloat16`; on GPUs only.
    Bf16,
}

/// What to load, and how.
#[derive(Debug, Clone)]
pub struct LoadSpec {
    /// Where the weights are.
    pub source: WeightsSource,
    /// The GPU to compute on; `None` for the CPU.
    pub gpu: Option<usize>,
    /// The type of the arithmetic; a GGUF file's weights stay as they are.
    pub dtype: Dtype,
    /// The longest sequence, prompt and output together, in tokens.
    pub max_model_len: usize,
    /// Width of the logits.
    pub vocab_size: usize,
    /// Why nobody knows whether mistral.rs computes this right.
    pub unproven: Option<String>,
}

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file of the model is missing.
    #[error("{} does not exist", .0.display())]
    NotFound(PathBuf),
    /// A file of the model, or a temporary one, could not be read or written.
    #[error("could not read or write {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// mistral.rs would compute something else than the model.
    #[error("this model is not supported: {0}")]
    Unsupported(String),
    /// The device cannot compute in this type.
    #[error("dtype {dtype} is not supported on a CPU, use float32")]
    Dtype {
        /// The type asked for.
        dtype: Dtype,
    },
    /// The model is shorter than asked for.
    #[error("a context of {requested} tokens was asked for, the longest possible is {longest}")]
    ContextTooLong {
        /// Tokens asked for.
        requested: usize,
        /// Tokens possible.
        longest: usize,
    },
    /// No thread to load on.
    #[error("could not start a thread: {0}")]
    Thread(io::Error),
    /// mistral.rs refused or panicked.
    #[error("mistral.rs cannot load this model: {0}")]
    Engine(String),
}

/// A model served by mistral.rs.
pub struct MistralRsEngine {
    shared: Arc<Shared>,
    runtime: Handle,
}

/// What the tasks of all sequences share.
struct Shared {
    info: EngineInfo,
    alphabet: Alphabet,
    admission: Arc<Admission>,
    /// What was sampled and not read yet.
    backlog: Arc<Backlog>,
    requests: mpsc::Sender<Request>,
    /// Why the engine serves no more.
    failure: OnceLock<String>,
    /// Keeps the engine's thread alive.
    _owner: Box<dyn Any + Send + Sync>,
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
        let (vocab_size, max_model_len) = (spec.vocab_size, spec.max_model_len);
        let unproven = spec.unproven.clone();
        let alphabet = Alphabet::new(vocab_size)
            .ok_or_else(|| LoadError::Unsupported(format!("a vocabulary of {vocab_size} tokens")))?;
        let Loaded { engine, requests, device, dtype } = load::load(spec, alphabet).await?;
        probe::probe(&requests, vocab_size, max_model_len).await?;
        let info = EngineInfo { engine: "mistralrs", device, dtype, vocab_size, max_model_len, unproven };
        Ok(Self::over(info, alphabet, requests, Box::new(engine)))
    }

    /// An engine that takes `requests` as long as `owner` lives. Needs a tokio runtime.
    fn over(
        info: EngineInfo,
        alphabet: Alphabet,
        requests: mpsc::Sender<Request>,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        let admission = Arc::new(Admission::new(1, MAX_WAITING));
        let backlog = Backlog::new(UNREAD);
        let shared = Shared { info, alphabet, admission, backlog, requests, failure: OnceLock::new(), _owner: owner };
        Self { shared: Arc::new(shared), runtime: Handle::current() }
    }

    fn begin(&self, ticket: Ticket, request: SequenceRequest) -> Result<TokenStream, EngineError> {
        self.shared.alive()?;
        self.shared.info.check(&request, self)?;
        let arrived = ticket.arrived;
        let place = self.shared.admission.enter(ticket)?;
        // A sequence that has no room ends: there is nothing to tell it when there is some again.
        let (outputs, stream) = self.shared.backlog.channel(request.prompt_token_ids.len(), arrived, || ());
        let outputs = outputs.timed(request.timed);
        self.runtime.spawn(sequence::run(Arc::clone(&self.shared), place, request, outputs));
        Ok(stream.boxed())
    }
}

impl Shared {
    fn alive(&self) -> Result<(), EngineError> {
        self.failure.get().map_or(Ok(()), |reason| Err(EngineError::Failed(reason.clone())))
    }

    /// Takes note that the engine's thread is gone: nobody is admitted any more.
    fn died(&self) -> EngineError {
        let reason = self.failure.get_or_init(|| "the thread of the engine ended unexpectedly".to_owned());
        self.admission.close();
        EngineError::Failed(reason.clone())
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

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        })
    }
}

/// What a panic said.
fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}
