//! Holds generations at a token, so that tests need no sleep.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Lets a counted number of tokens through, over all sequences; clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    passes: Arc<Semaphore>,
}

impl Gate {
    /// A gate that lets nothing through yet.
    pub fn shut() -> Self {
        Self { passes: Arc::new(Semaphore::new(0)) }
    }

    /// A gate that lets everything through.
    pub(super) fn opened() -> Self {
        let gate = Self::shut();
        gate.open();
        gate
    }

    /// Lets `tokens` more tokens through.
    pub fn pass(&self, tokens: usize) {
        self.passes.add_permits(tokens);
    }

    /// Lets everything through from now on.
    pub fn open(&self) {
        self.passes.close();
    }

    /// Waits for a token's turn.
    pub(super) async fn passed(&self) {
        // An error means that the gate was opened for good.
        if let Ok(pass) = self.passes.acquire().await {
            pass.forget();
        }
    }
}
