//! Whether requests may be sent to this server: not any more once it was told to stop.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Says it to `/readyz` and `/health`; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    stopping: Arc<AtomicBool>,
}

impl Readiness {
    /// Returns whether the server takes requests, and goes on to.
    pub fn is_ready(&self) -> bool {
        !self.stopping.load(Ordering::Relaxed)
    }

    /// Says that the server will stop; what is sent until then is still answered.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}
