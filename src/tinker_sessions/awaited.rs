//! A sampling request whose result its client comes for later.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{sync::watch, task::AbortHandle};

/// How it stands with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is sampled.
    Pending,
    /// Its result.
    Done(Bytes),
    /// Why it failed, and whether the client is at fault.
    Failed { error: String, is_users: bool },
    /// There is no result, or none any more: the client may ask anew.
    Gone,
}

impl Outcome {
    fn bytes(&self) -> usize {
        match self {
            Self::Done(bytes) => bytes.len(),
            Self::Failed { error, .. } => error.len(),
            Self::Pending | Self::Gone => 0,
        }
    }
}

/// How much is kept of all requests together.
#[derive(Default)]
pub(crate) struct Kept {
    /// Requests whose results were not handed out.
    pub(crate) awaited: AtomicUsize,
    pub(crate) bytes: AtomicUsize,
}

/// One sampling request.
pub(crate) struct Request {
    kept: Arc<Kept>,
    /// What was asked; the same number with other words is another request.
    pub(crate) digest: blake3::Hash,
    pub(crate) outcome: watch::Sender<Outcome>,
    /// What samples it.
    pub(crate) task: Mutex<Option<AbortHandle>>,
    /// When the outcome last changed or was handed out.
    pub(crate) changed: Instant,
    pub(crate) was_retrieved: bool,
}

impl Request {
    pub(crate) fn new(digest: blake3::Hash, outcome: watch::Sender<Outcome>, kept: &Arc<Kept>) -> Self {
        kept.awaited.fetch_add(1, Ordering::Relaxed);
        let (kept, task, changed) = (Arc::clone(kept), Mutex::default(), Instant::now());
        Self { kept, digest, outcome, task, changed, was_retrieved: false }
    }

    /// Says what came of it.
    pub(crate) fn set(&self, outcome: Outcome) {
        self.kept.bytes.fetch_add(outcome.bytes(), Ordering::Relaxed);
        let before = self.outcome.send_replace(outcome);
        self.kept.bytes.fetch_sub(before.bytes(), Ordering::Relaxed);
    }

    /// Its result was handed out, or nobody wants it any more.
    pub(crate) fn retrieved(&mut self) {
        self.changed = Instant::now();
        if !std::mem::replace(&mut self.was_retrieved, true) {
            self.kept.awaited.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.kept.bytes.fetch_sub(self.outcome.borrow().bytes(), Ordering::Relaxed);
        if !self.was_retrieved {
            self.kept.awaited.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(task) = self.task.get_mut().take() {
            task.abort();
        }
    }
}
