//! How many requests are being served.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The number of requests that are being served. It is counted with `--enable-server-load-tracking`, and always 0
/// without, as in vLLM.
#[derive(Debug, Default)]
pub struct ServerLoad {
    tracked: bool,
    requests: Arc<AtomicUsize>,
}

impl ServerLoad {
    /// Counts requests if `tracked`.
    pub fn new(tracked: bool) -> Self {
        Self { tracked, requests: Arc::default() }
    }

    /// Returns how many are being served.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Counts one more, while what this returns lives; nothing unless requests are counted.
    pub(crate) fn enter(&self) -> Option<Served> {
        self.tracked.then(|| {
            self.requests.fetch_add(1, Ordering::Relaxed);
            Served { _counted: Arc::new(Counted(Arc::clone(&self.requests))) }
        })
    }
}

/// A request that counts as being served while this lives, or a copy of it: it counts once.
#[derive(Clone)]
pub(crate) struct Served {
    _counted: Arc<Counted>,
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
