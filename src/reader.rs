//! Who reads the answer of a request, as far as its connection tells: the task that answers finds it here.
//!
//! Owns the current reader. Refuses connections and streams: those below it ask, and those above it tell.

use std::sync::Arc;

use tokio::time::Instant;

/// The reader of an answer that has a connection for itself.
pub(crate) trait Reader: Send + Sync {
    /// When bytes of an answer went on their way to it last.
    fn took(&self) -> Instant;
}

tokio::task_local! {
    static CURRENT: Arc<dyn Reader>;
}

/// The reader of the current request, if its connection tells.
pub(crate) fn current() -> Option<Arc<dyn Reader>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// Serves a request that has a reader.
pub(crate) fn within<F: Future>(reader: Arc<dyn Reader>, serve: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(reader, serve)
}
