//! Where events of the cache are published, and what routers are told of it.

use anyhow::anyhow;

use crate::{
    config::KvEventsConfig,
    engine::native::BLOCK_SIZE,
    kv_events::{Bound, Publishing},
    state::KvEventSource,
};

/// Takes the ports, before anything is loaded.
pub(super) async fn bind(config: Option<&KvEventsConfig>) -> anyhow::Result<Option<Bound>> {
    let Some(KvEventsConfig { endpoint, replay_endpoint, buffer_steps, hwm, topic, .. }) = config.cloned() else {
        return Ok(None);
    };
    let publishing = Publishing { endpoint, replay_endpoint, buffer_steps, hwm, topic };
    publishing.bind().await.map(Some).map_err(|reason| anyhow!("--kv-events-config: {reason}"))
}

/// What `/kv_event_sources` answers.
pub(super) fn source(config: &KvEventsConfig) -> KvEventSource {
    let KvEventsConfig { endpoint, replay_endpoint, buffer_steps, hwm, max_queue_size, topic } = config.clone();
    KvEventSource {
        enable_kv_cache_events: true,
        publisher: "zmq",
        encoding: "msgpack",
        schema_version: 1,
        endpoint,
        replay_endpoint,
        buffer_steps,
        hwm,
        max_queue_size,
        topic,
        block_size: BLOCK_SIZE,
    }
}
