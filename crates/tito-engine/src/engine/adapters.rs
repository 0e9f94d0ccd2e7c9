//! Adapters of the model: what a request names, and what an engine can do with them.
//!
//! Owns the identity of an adapter. Refuses names and who may use them, which is `adapters`' business.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::weights::{checksum::Checksum, peft::PeftAdapter};

/// Tells an adapter from all others of this process, also from those that had its name before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AdapterId(u64);

impl AdapterId {
    /// The number.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// An adapter that requests can use. Whoever holds it can go on with it, also where its name is given to another one.
pub struct Adapter {
    id: AdapterId,
    name: Arc<str>,
    label: Arc<str>,
    weights: PeftAdapter,
    checksum: OnceLock<Checksum>,
}

impl Adapter {
    /// Makes an adapter with an identity of its own: the given version of a name.
    pub fn new(name: &str, version: u64, weights: PeftAdapter) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = AdapterId(NEXT.fetch_add(1, Ordering::Relaxed));
        Arc::new(Self {
            id,
            name: name.into(),
            label: format!("{name}@{version}").into(),
            weights,
            checksum: OnceLock::new(),
        })
    }

    /// Returns its identity.
    pub fn id(&self) -> AdapterId {
        self.id
    }

    /// Returns the name under which requests ask for it.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns what its tokens are said to be sampled with: the name and its version.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// Returns the checksum of its matrices, which tells it from adapters of other processes too. The first call reads all
    /// of them: call it where a thread may wait.
    pub fn checksum(&self) -> Checksum {
        *self.checksum.get_or_init(|| Checksum::of_adapter(&self.weights))
    }

    /// Returns its matrices.
    pub fn weights(&self) -> &PeftAdapter {
        &self.weights
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Adapter({}, {})", self.id.0, self.label)
    }
}

/// The bounds of an engine's adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdapterLimits {
    /// Adapters whose sequences can be in one step; each has a place in the device's memory.
    pub max_loras: usize,
    /// The greatest rank of an adapter.
    pub max_lora_rank: usize,
}

/// The adapters that requests in an engine ask for, by name, each once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdapterLoad {
    /// Those of sequences that are being computed.
    pub running: Vec<Arc<str>>,
    /// Those of sequences that wait, and of no sequence that is being computed.
    pub waiting: Vec<Arc<str>>,
    /// How many sequences wait for a place of their adapter, while there are seats.
    pub deferred: usize,
}

/// The part of an engine that serves adapters.
pub trait EngineAdapters: Send + Sync {
    /// Returns the bounds.
    fn limits(&self) -> AdapterLimits;

    /// Returns which adapters requests ask for now.
    fn asked_for(&self) -> AdapterLoad;

    /// Compares an adapter with the model, and returns the name of the tensor that each of its modules changes. Numbers of
    /// the base that the adapter has with it are not looked at.
    ///
    /// # Errors
    ///
    /// If it cannot be applied as it is; the error is one line.
    fn check(&self, adapter: &PeftAdapter) -> Result<Vec<String>, String>;

    /// Gives back what the device keeps of an adapter, as soon as no sequence that runs needs it.
    fn forget(&self, id: AdapterId);
}
