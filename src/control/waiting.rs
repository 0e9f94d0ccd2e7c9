//! Waiting for the requests that run to end.

use futures::{
    FutureExt,
    future::{self, Either},
};
use tokio::sync::MutexGuard;

use super::{Control, ControlError, State};
use crate::engine::EngineError;

/// How a wait for requests came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// They have ended.
    Settled,
    /// Another call took the place of the one that waits.
    Superseded,
    /// So many tensors of the weights are lost: nothing is sampled, so that requests do not end by themselves.
    WithoutWeights(usize),
}

/// The refusal of a wait for requests that a server keeps while it sleeps.
pub(super) const KEPT_ASLEEP: ControlError = ControlError::State(
    "the server sleeps, so that the requests in it do not end and cannot be awaited: POST /wake_up first, or end them with \
     mode=abort",
);

/// The refusal of a wait that nothing would end.
pub(super) fn without_weights(missing: usize) -> ControlError {
    EngineError::WithoutWeights { missing }.into()
}

impl Control {
    /// Waits until the requests that run have ended, as long as `is_awaited` says of the state that somebody waits. No other
    /// call is done while the state is held that comes with the answer.
    pub(super) async fn wait_for_requests(
        &self,
        is_awaited: impl Fn(&State) -> bool,
    ) -> (MutexGuard<'_, State>, Waited) {
        let mut changes = self.changes.subscribe();
        let mut settled = Box::pin(self.requests.settled()).fuse();
        let mut is_settled = false;
        loop {
            let state = self.state.lock().await;
            is_settled |= (&mut settled).now_or_never().is_some();
            let lacking = self.lacking();
            if !is_awaited(&state) {
                return (state, Waited::Superseded);
            }
            if is_settled {
                return (state, Waited::Settled);
            }
            if lacking > 0 {
                return (state, Waited::WithoutWeights(lacking));
            }
            // What changes the state says so while it holds it, and is done before it is looked at again.
            changes.mark_unchanged();
            drop(state);
            let next_change = Box::pin(changes.changed());
            if let Either::Left(_) = future::select(&mut settled, next_change).await {
                is_settled = true;
            }
        }
    }
}
