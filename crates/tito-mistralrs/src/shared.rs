//! What the tasks of all sequences share.

use std::{
    any::Any,
    sync::{Arc, OnceLock},
};

use mistralrs_core::Request;
use tokio::sync::mpsc;

use super::alphabet::Alphabet;
use crate::engine::{EngineError, EngineInfo, admission::Admission, backlog::Backlog};

/// What the tasks of all sequences share.
pub(super) struct Shared {
    pub(super) info: EngineInfo,
    pub(super) alphabet: Alphabet,
    pub(super) admission: Arc<Admission>,
    /// What was sampled and not read yet.
    pub(super) backlog: Arc<Backlog>,
    pub(super) requests: mpsc::Sender<Request>,
    /// Why the engine serves no more.
    pub(super) failure: OnceLock<String>,
    /// Keeps the engine's thread alive.
    pub(super) _owner: Box<dyn Any + Send + Sync>,
}

impl Shared {
    pub(super) fn alive(&self) -> Result<(), EngineError> {
        self.failure.get().map_or(Ok(()), |reason| Err(EngineError::Failed(reason.clone())))
    }

    /// Takes note that the engine's thread is gone: nobody is admitted any more.
    pub(super) fn died(&self) -> EngineError {
        let reason = self.failure.get_or_init(|| "the thread of the engine ended unexpectedly".to_owned());
        self.admission.close();
        EngineError::Failed(reason.clone())
    }
}
