//! What sleeps of a server.

/// What sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asleep {
    pub(super) weights: bool,
    pub(super) kv_cache: bool,
}

impl Asleep {
    /// The name of the state in vLLM's metrics; none, as there, where no memory was given back.
    pub(super) fn vllms_name(self) -> Option<&'static str> {
        match self {
            Self { weights: true, .. } => Some("discard_all"),
            Self { kv_cache: true, .. } => Some("weights_offloaded"),
            Self { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_that_gives_no_memory_back_has_no_name_in_the_metrics() {
        let name = |weights, kv_cache| Asleep { weights, kv_cache }.vllms_name();
        assert_eq!(name(false, false), None);
        assert_eq!(name(false, true), Some("weights_offloaded"));
        assert_eq!([name(true, false), name(true, true)], [Some("discard_all"); 2]);
    }
}
