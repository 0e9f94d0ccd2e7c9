//! What sleeps of a server.

/// What sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asleep {
    pub(super) weights: bool,
    pub(super) kv_cache: bool,
}

impl Asleep {
    /// The name of the state in vLLM's metrics.
    pub(super) fn vllms_name(self) -> &'static str {
        if self.weights { "discard_all" } else { "weights_offloaded" }
    }
}
