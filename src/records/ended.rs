//! The events of responses that were streamed from the background, for clients that come after the end.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use moka::{policy::EvictionPolicy, sync::Cache};

use super::key::ResponseKey;

/// What the events of all of them may take together; those that were not asked for the longest leave first.
const MOST_BYTES: u64 = 64 << 20;
/// How long after its end a response can be streamed.
const KEPT_FOR: Duration = Duration::from_hours(1);

/// Events by their responses, in memory.
#[derive(Debug)]
pub(super) struct EndedStreams(Cache<ResponseKey, Arc<[Bytes]>>);

impl Default for EndedStreams {
    fn default() -> Self {
        Self::bounded(MOST_BYTES)
    }
}

impl EndedStreams {
    fn bounded(most_bytes: u64) -> Self {
        let weight = |_: &ResponseKey, frames: &Arc<[Bytes]>| {
            let bytes: usize = frames.iter().map(|frame| size_of::<Bytes>() + frame.len()).sum();
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder().max_capacity(most_bytes).weigher(weight).time_to_live(KEPT_FOR);
        Self(cache.eviction_policy(EvictionPolicy::lru()).build())
    }

    /// Keeps the events of a response, as frames of a stream.
    pub(super) fn keep(&self, key: ResponseKey, frames: Vec<Bytes>) {
        self.0.insert(key, frames.into());
    }

    /// Returns the events of a response; `None` if there are none any more.
    pub(super) fn get(&self, key: &ResponseKey) -> Option<Arc<[Bytes]>> {
        self.0.get(key)
    }

    /// Forgets the events of a response.
    pub(super) fn forget(&self, key: &ResponseKey) {
        self.0.invalidate(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::Client;

    #[test]
    fn what_is_kept_is_bounded_and_what_is_asked_for_stays() {
        let streams = EndedStreams::bounded(4 << 10);
        let key = |index: usize| ResponseKey::of(Client::default(), format!("r{index}"));
        let frames = || vec![Bytes::from(vec![b'x'; 1000])];
        for index in 0..20 {
            streams.keep(key(index), frames());
            streams.0.run_pending_tasks();
            assert!(streams.get(&key(0)).is_some(), "{index}");
        }
        assert!(streams.0.weighted_size() <= 4 << 10);
        assert!(streams.get(&key(5)).is_none() && streams.get(&key(19)).is_some());
        streams.forget(&key(0));
        assert!(streams.get(&key(0)).is_none());
        streams.keep(key(1), vec![Bytes::from(vec![b'x'; 5000])]);
        streams.0.run_pending_tasks();
        assert!(streams.get(&key(1)).is_none(), "larger than all that may be kept");
    }
}
