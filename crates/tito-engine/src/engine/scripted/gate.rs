//! Holds generations at a token, so that tests need no sleep, or ends them there as a fault would.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::{Semaphore, TryAcquireError};

/// Lets a counted number of tokens through, over all sequences; clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    passes: Arc<Semaphore>,
    /// After the passes is no wait, but a fault.
    fails: Arc<AtomicBool>,
}

impl Gate {
    /// A gate that lets nothing through yet.
    pub fn shut() -> Self {
        Self { passes: Arc::new(Semaphore::new(0)), fails: Arc::default() }
    }

    /// A gate that lets `tokens` tokens through, and fails after them.
    #[cfg(any(test, feature = "internals"))]
    pub fn failing_after(tokens: usize) -> Self {
        let gate = Self::shut();
        gate.pass(tokens);
        gate.fails.store(true, Ordering::Relaxed);
        gate
    }

    /// A gate that lets everything through.
    pub(super) fn opened() -> Self {
        let gate = Self::shut();
        gate.open();
        gate
    }

    /// Lets `tokens` more tokens through.
    #[cfg(any(test, feature = "internals"))]
    pub fn pass(&self, tokens: usize) {
        self.passes.add_permits(tokens);
    }

    /// Whether all tokens that it lets through have passed.
    #[cfg(any(test, feature = "internals"))]
    pub fn is_used_up(&self) -> bool {
        self.passes.available_permits() == 0
    }

    /// Lets everything through from now on.
    pub fn open(&self) {
        self.passes.close();
    }

    /// Waits for a token's turn; false where the engine is to fail instead.
    pub(super) async fn passed(&self) -> bool {
        let pass = match self.passes.try_acquire() {
            Err(TryAcquireError::NoPermits) if self.fails.load(Ordering::Relaxed) => return false,
            Err(TryAcquireError::NoPermits) => self.passes.acquire().await.ok(),
            // The gate was opened for good.
            Err(TryAcquireError::Closed) => None,
            Ok(pass) => Some(pass),
        };
        if let Some(pass) = pass {
            pass.forget();
        }
        true
    }
}
