//! How many calls that write weights have no answer yet: a stop waits for them.

use tokio::sync::watch;

/// Calls that write weights.
#[derive(Debug)]
pub(super) struct WritingCalls(watch::Sender<usize>);

/// A call that writes weights, until it has its answer.
pub(super) struct WritingCall<'a>(&'a watch::Sender<usize>);

impl WritingCalls {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Counts one more until it is dropped.
    pub(super) fn begin(&self) -> WritingCall<'_> {
        self.0.send_modify(|calls| *calls += 1);
        WritingCall(&self.0)
    }

    /// Waits until there is none.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut calls = self.0.subscribe();
        async move { _ = calls.wait_for(|calls| *calls == 0).await }
    }
}

impl Drop for WritingCall<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls -= 1);
    }
}
