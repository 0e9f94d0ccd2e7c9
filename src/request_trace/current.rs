//! The notes of the request that a task works for.

use std::{sync::Arc, time::Instant};

use super::{record::PromptVerdict, trace::RequestTrace};

tokio::task_local! {
    static CURRENT: Arc<RequestTrace>;
}

/// The notes of the current request, if any are taken.
pub(crate) fn current() -> Option<Arc<RequestTrace>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// Serves a request whose notes are taken.
pub(crate) async fn within<F: Future>(trace: Arc<RequestTrace>, serve: F) -> F::Output {
    CURRENT.scope(trace, serve).await
}

/// Does a piece of work for such a request.
pub(crate) fn entered<T>(trace: &Arc<RequestTrace>, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(Arc::clone(trace), work)
}

/// The current request is one of those that generate, even if it should be refused.
pub(crate) fn generates() {
    // Without notes, there is nothing to say.
    let _ = CURRENT.try_with(|trace| trace.generates());
}

/// Puts a prompt of the current request into ids, and notes how long that takes and what became of known ids.
pub(crate) async fn prompting<T, E>(
    work: impl Future<Output = Result<T, E>>,
    verdict: impl FnOnce(&T) -> PromptVerdict,
) -> Result<T, E> {
    let Some(trace) = current() else { return work.await };
    let started = Instant::now();
    let prompt = work.await;
    trace.prompt(started, prompt.as_ref().ok().map(verdict));
    prompt
}
