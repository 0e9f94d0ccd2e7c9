//! Turns that are kept and that no request waits for: their clients have left.

use std::sync::Arc;

use tokio::sync::watch;

/// How many there are. Clones count the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Unawaited(Arc<watch::Sender<usize>>);

/// One of them, until this is dropped.
#[derive(Debug)]
pub struct UnawaitedTurn(Unawaited);

impl Unawaited {
    pub(super) fn turn(&self) -> UnawaitedTurn {
        self.0.send_modify(|count| *count += 1);
        UnawaitedTurn(self.clone())
    }

    /// Resolves when there is none.
    pub(super) fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut count = self.0.subscribe();
        // If the sender is gone, nothing is kept any more.
        async move { drop(count.wait_for(|count| *count == 0).await) }
    }
}

impl Drop for UnawaitedTurn {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
