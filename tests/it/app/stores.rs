//! Servers that keep something: responses, captures, and turns for other servers.

use std::sync::Arc;

use tito::{continuity::Namespace, continuity_store::ContinuityStore, store::ResponseStore, turn::Capture};

use super::TestApp;

impl TestApp {
    /// `--continuity-store`, of the servers of a namespace.
    pub(crate) fn shares(self, store: Arc<ContinuityStore>, namespace: Namespace) -> Self {
        self.with(|recipe| recipe.store = Some((store, namespace)))
    }

    /// Where responses are kept, which may be another app's too.
    pub(crate) fn response_store(self, store: Arc<dyn ResponseStore>) -> Self {
        self.with(|recipe| recipe.response_store = Some(store))
    }

    /// `--capture`.
    pub(crate) fn captures(self, capture: Capture) -> Self {
        self.with(|recipe| recipe.capture = Some(capture))
    }
}
