//! What others may know of the engine's thread without waiting for it.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::engine::{EngineError, EngineLoad};

/// Shared between the engine and its thread.
#[derive(Debug)]
pub(super) struct Status {
    load: Mutex<EngineLoad>,
    /// Sequences from their request to their end.
    present: AtomicUsize,
    /// Why nobody is admitted any more; `None` while the engine serves.
    closed: Mutex<Option<EngineError>>,
    ended: watch::Sender<bool>,
    weight_version: AtomicU64,
}

impl Status {
    pub(super) fn new() -> Self {
        Self {
            load: Mutex::default(),
            present: AtomicUsize::new(0),
            closed: Mutex::new(None),
            ended: watch::Sender::new(false),
            weight_version: AtomicU64::new(0),
        }
    }

    /// Counts a sequence in, unless there are `most` already.
    pub(super) fn enter(&self, most: usize) -> Result<(), EngineError> {
        self.health()?;
        let counted = self
            .present
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |present| (present < most).then_some(present + 1));
        counted.map(|_| ()).map_err(|_| EngineError::Overloaded)
    }

    /// Counts a sequence out.
    pub(super) fn leave(&self) {
        self.present.fetch_sub(1, Ordering::AcqRel);
    }

    /// Sequences that were counted in and not out.
    #[cfg(test)]
    pub(super) fn present(&self) -> usize {
        self.present.load(Ordering::Acquire)
    }

    pub(super) fn load(&self) -> EngineLoad {
        *self.load.lock()
    }

    pub(super) fn set_load(&self, load: EngineLoad) {
        *self.load.lock() = load;
    }

    pub(super) fn health(&self) -> Result<(), EngineError> {
        self.closed.lock().clone().map_or(Ok(()), Err)
    }

    /// Nobody is admitted any more. A failure is the reason from now on; without one, the first reason stays.
    pub(super) fn close(&self, failure: Option<EngineError>) {
        let mut closed = self.closed.lock();
        let reason = failure.or_else(|| closed.take());
        *closed = Some(reason.unwrap_or_else(|| EngineError::Failed("the engine is shut down".to_owned())));
    }

    /// The thread computes nothing any more.
    pub(super) fn idle(&self) {
        self.set_load(EngineLoad::default());
        self.ended.send_replace(true);
    }

    /// Waits until the thread is idle, at most `grace`.
    pub(super) async fn ended(&self, grace: Duration) {
        let mut ended = self.ended.subscribe();
        let _ = tokio::time::timeout(grace, ended.wait_for(|ended| *ended)).await;
    }

    pub(super) fn weight_version(&self) -> u64 {
        self.weight_version.load(Ordering::Acquire)
    }

    pub(super) fn set_weight_version(&self, version: u64) {
        self.weight_version.store(version, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_the_reason_before_and_after_a_shutdown() {
        let failure = || EngineError::Failed("the engine's thread panicked".to_owned());
        for reasons in [[Some(failure()), None], [None, Some(failure())]] {
            let status = Status::new();
            assert_eq!(status.health(), Ok(()));
            for reason in reasons {
                status.close(reason);
                assert!(status.health().is_err());
            }
            assert_eq!((status.health(), status.enter(1)), (Err(failure()), Err(failure())));
        }
    }
}
