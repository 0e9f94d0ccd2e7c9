//! What others may know of the engine's thread without waiting for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::engine::{AdapterLoad, EngineError, EngineLoad, Party, Reservation, WeightVersion, reservation::Register};

/// Shared between the engine and its thread.
#[derive(Debug)]
pub(super) struct Status {
    load: Mutex<EngineLoad>,
    /// The sequences that have a place, from their request to their end.
    register: Arc<Register>,
    /// Why nobody is admitted any more; `None` while the engine serves.
    closed: Mutex<Option<EngineError>>,
    ended: watch::Sender<bool>,
    weights: Mutex<Arc<WeightVersion>>,
    adapters: Mutex<AdapterLoad>,
    /// Tensors that are to be written before anything can be computed.
    lacking: AtomicUsize,
    /// Updates that were begun, whatever became of them.
    begun_updates: AtomicU64,
}

impl Status {
    /// The status of an engine that has room for `most` sequences.
    pub(super) fn new(most: usize) -> Self {
        Self {
            load: Mutex::default(),
            register: Register::new(most),
            closed: Mutex::new(None),
            ended: watch::Sender::new(false),
            weights: Mutex::new(WeightVersion::first()),
            adapters: Mutex::default(),
            lacking: AtomicUsize::new(0),
            begun_updates: AtomicU64::new(0),
        }
    }

    /// Takes places for all `sequences` of a request, or none.
    pub(super) fn reserve(&self, party: Option<Party>, sequences: usize) -> Result<Reservation, EngineError> {
        self.health()?;
        self.register.reserve(party, sequences)
    }

    /// Sequences that have a place.
    #[cfg(test)]
    pub(super) fn present(&self) -> usize {
        self.register.present()
    }

    pub(super) fn load(&self) -> EngineLoad {
        let load = *self.load.lock();
        EngineLoad { waiting: load.waiting + self.register.unstarted(), ..load }
    }

    pub(super) fn set_load(&self, load: EngineLoad) {
        *self.load.lock() = load;
    }

    pub(super) fn adapters(&self) -> AdapterLoad {
        self.adapters.lock().clone()
    }

    /// Takes note of the adapters that are asked for.
    pub(super) fn set_adapters(&self, adapters: AdapterLoad) {
        *self.adapters.lock() = adapters;
    }

    pub(super) fn health(&self) -> Result<(), EngineError> {
        self.closed.lock().clone().map_or(Ok(()), Err)
    }

    /// Admits nobody any more. A failure is the reason from now on; without one, the first reason stays.
    pub(super) fn close(&self, failure: Option<EngineError>) {
        let mut closed = self.closed.lock();
        let reason = failure.or_else(|| closed.take());
        *closed = Some(reason.unwrap_or(EngineError::ShutDown));
    }

    /// Takes note that the thread computes nothing any more.
    pub(super) fn idle(&self) {
        self.set_load(EngineLoad::default());
        self.ended.send_replace(true);
    }

    /// Waits until the thread is idle, at most `grace`.
    pub(super) async fn ended(&self, grace: Duration) {
        let mut ended = self.ended.subscribe();
        let _ = tokio::time::timeout(grace, ended.wait_for(|ended| *ended)).await;
    }

    pub(super) fn weights(&self) -> Arc<WeightVersion> {
        Arc::clone(&self.weights.lock())
    }

    pub(super) fn set_weights(&self, weights: Arc<WeightVersion>) {
        *self.weights.lock() = weights;
    }

    pub(super) fn lacking(&self) -> usize {
        self.lacking.load(Ordering::Acquire)
    }

    pub(super) fn begun_updates(&self) -> u64 {
        self.begun_updates.load(Ordering::Acquire)
    }

    /// Takes note that an update begins, before anything is overwritten.
    pub(super) fn count_begun_update(&self) {
        self.begun_updates.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn set_lacking(&self, lacking: usize) {
        self.lacking.store(lacking, Ordering::Release);
    }
}

/// The thread ended without saying why.
pub(super) fn thread_is_gone() -> EngineError {
    EngineError::Failed("the engine's thread is gone".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_the_reason_before_and_after_a_shutdown() {
        let failure = || EngineError::Failed("the engine's thread panicked".to_owned());
        for reasons in [[Some(failure()), None], [None, Some(failure())]] {
            let status = Status::new(1);
            assert_eq!(status.health(), Ok(()));
            for reason in reasons {
                status.close(reason);
                assert!(status.health().is_err());
            }
            assert_eq!(status.health(), Err(failure()));
            assert_eq!(status.reserve(None, 1).err(), Some(failure()));
        }
    }
}
