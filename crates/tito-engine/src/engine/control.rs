//! What a training loop does to an engine while it serves: it holds it, gives it other weights, and takes its memory.
//!
//! Owns the words for it. Refuses to know who asks, and in which state a server may be asked for what: `control` does.

use std::{path::PathBuf, sync::Arc};

use futures::future::BoxFuture;

use super::{EngineError, TensorChanges, WeightDtype, WeightTensor};

/// The weights that computed a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightVersion {
    /// How often the weights were replaced; 0 for those that were loaded.
    pub number: u64,
    /// What whoever brought them calls them.
    pub label: Arc<str>,
}

impl WeightVersion {
    /// The label of weights that were loaded when the server started, as in vLLM 0.33.
    pub const FIRST: &'static str = "default";

    /// The weights that an engine starts with.
    pub fn first() -> Arc<Self> {
        Arc::new(Self { number: 0, label: Self::FIRST.into() })
    }
}

/// What becomes of the keys and values of running sequences when the weights change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnWeightsChange {
    /// They are computed anew, with the new weights, before the next token is sampled.
    #[default]
    Recompute,
    /// They stay: the next tokens are sampled by new weights that read what old ones wrote. No other sequence ever does.
    Reuse,
}

/// What an update keeps, so that it can be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UndoPolicy {
    /// The old weights stay in memory until the update is finished.
    #[default]
    Memory,
    /// Nothing. After an update that fails, the engine refuses to sample until it gets all weights anew.
    Nothing,
}

/// A tensor of the model that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name that the Hugging Face checkpoint has for it.
    pub name: String,
    /// The type in which the engine holds its numbers; no number of it is lost there.
    pub dtype: WeightDtype,
    /// Its lengths, the outermost first.
    pub shape: Vec<usize>,
}

/// Where new weights are.
#[derive(Debug)]
pub enum NewWeights {
    /// A file of safetensors, or a directory with one, with shards and their index, or with any of them.
    Path(PathBuf),
    /// In memory.
    Tensors(Vec<WeightTensor>),
    /// In memory, some numbers of tensors in the types in which the engine holds them.
    Changes(Vec<TensorChanges>),
}

/// What an update has written so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Tensors.
    pub tensors: usize,
    /// Bytes, in the type in which the engine holds them.
    pub bytes: u64,
}

impl std::ops::AddAssign for Written {
    fn add_assign(&mut self, more: Self) {
        self.tensors += more.tensors;
        self.bytes += more.bytes;
    }
}

/// Memory that can be given back to the system while nothing is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// That of keys and values.
    KvCache,
    /// That of the weights. They are gone then.
    Weights,
}

/// Why weights were not replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// The weights cannot be read, or are not the model's. The engine has those that it had before the update.
    #[error("{0}")]
    Refused(String),
    /// The weights cannot be read now, and the same call may work later. The engine has those that it had before the update.
    #[error("{0}")]
    NotNow(String),
    /// The call does not fit what was called before. Nothing changed.
    #[error("{0}")]
    OutOfOrder(&'static str),
    /// Weights are to be read that are being replaced. Nothing changed.
    #[error(
        "a weight update is under way: what is there now is neither the old weights nor the new ones; ask again when it has \
         ended"
    )]
    Unsettled,
    /// There is no memory to keep what would be overwritten. Nothing was written.
    #[error(
        "keeping the old weights until the update is finished takes {needed} bytes, and {available} are there; \
         start the server with --weights-undo nothing to overwrite them without a way back"
    )]
    NoRoomForUndo {
        /// Bytes that the old weights take.
        needed: u64,
        /// Bytes that the system could still give.
        available: u64,
    },
    /// An update failed half-way and nothing had been kept. The engine samples nothing until it has all weights anew.
    #[error("{reason}; the old weights were not kept, so that nothing is sampled before all weights are sent again")]
    Lost {
        /// What failed.
        reason: String,
    },
    /// The engine itself failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Takes tensors, one after the other: what they are, and their bytes, little-endian and row-major.
pub type Visit = Box<dyn FnMut(&TensorInfo, Vec<u8>) + Send>;

/// The answer of an engine's thread.
pub type Answer<'a, T, E = EngineError> = BoxFuture<'a, Result<T, E>>;

/// The part of an engine that a training loop needs. Every call is done between two steps; answers come when it is.
pub trait EngineControl: Send + Sync {
    /// Computes no step from now on. Sequences that come wait, and those that run stay as they are.
    fn hold(&self) -> Answer<'_, ()>;

    /// Goes on, unless weights are being replaced or missing.
    fn release(&self) -> Answer<'_, ()>;

    /// Forgets all cached prefixes: `true` once everything is gone, `false` while sequences hold some of it. Where
    /// `running` is set, sequences that run give back what they hold, and compute it anew.
    fn reset_prefix_cache(&self, running: bool) -> Answer<'_, bool>;

    /// The weights that sample now.
    fn weights(&self) -> Arc<WeightVersion>;

    /// Calls the weights something else from the next token on.
    fn relabel(&self, label: Arc<str>) -> Answer<'_, ()>;

    /// The tensors of the model, in the order of its layers.
    fn tensors(&self) -> Arc<[TensorInfo]>;

    /// Reads the tensors of these names; names that the model does not have are passed over. Refused while weights are
    /// replaced or missing; who reads in several calls compares [`begun_updates`](Self::begun_updates) before and after.
    fn read_weights(&self, names: Vec<String>, visit: Visit) -> Answer<'_, (), UpdateError>;

    /// Reads them for an update that goes on from what is there, or that was written by it.
    fn read_weights_amid_update(&self, names: Vec<String>, visit: Visit) -> Answer<'_, (), UpdateError>;

    /// How many updates were begun, whatever became of them. It rises before the first weight is overwritten.
    fn begun_updates(&self) -> u64;

    /// Begins to replace weights. Nothing is sampled until the update is finished or cancelled.
    fn begin_update(&self, undo: UndoPolicy) -> Answer<'_, (), UpdateError>;

    /// Compares names and shapes without writing anything.
    fn check_weights(&self, tensors: Vec<TensorInfo>) -> Answer<'_, (), UpdateError>;

    /// Looks whether a file or directory has every tensor of the model, without writing anything.
    fn check_whole(&self, path: PathBuf) -> Answer<'_, (), UpdateError>;

    /// Overwrites weights; answers with what this call wrote. An error ends the update, and the engine has the weights
    /// that it had before, but for [`UpdateError::Lost`] and [`UpdateError::OutOfOrder`].
    fn write_weights(&self, weights: NewWeights) -> Answer<'_, Written, UpdateError>;

    /// Goes on with the new weights, under a label or, where there is none, under the number of the update, with a
    /// suffix (`7.1`) where other weights were called that.
    fn finish_update(
        &self,
        label: Option<Arc<str>>,
        change: OnWeightsChange,
    ) -> Answer<'_, Arc<WeightVersion>, UpdateError>;

    /// Whether another model drafts.
    fn has_draft_model(&self) -> bool;

    /// Replaces weights of the model that drafts by those of a directory or file, in one call. That changes no token, so they
    /// have no version, and nothing is computed anew. An error leaves the old ones.
    fn update_draft(&self, path: PathBuf) -> Answer<'_, Written, UpdateError>;

    /// Puts the old weights back, if an update is under way.
    fn cancel_update(&self) -> Answer<'_, (), UpdateError>;

    /// Has all weights count as lost, whatever is there: nothing is sampled until every tensor has been sent again.
    fn lose_weights(&self) -> Answer<'_, ()>;

    /// Whether weights can be replaced at all; the error says why not, and what would help.
    fn replaces_weights(&self) -> Result<(), UpdateError>;

    /// Gives memory back to the system; nothing is sampled until it is restored. Sequences that run compute their keys
    /// and values anew then.
    fn discard(&self, memory: Memory) -> Answer<'_, ()>;

    /// Takes memory for it again. Weights are to be sent before anything is sampled.
    fn restore(&self, memory: Memory) -> Answer<'_, ()>;

    /// Tensors that are to be sent before anything can be sampled; none but after weights were discarded or lost.
    fn lacking(&self) -> usize;
}
