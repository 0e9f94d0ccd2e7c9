//! Where events of the cache are published.

use serde::Serialize;
use utoipa::ToSchema;

/// Where events of the cache are published, as vLLM's `KVEventsConfig` has it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct KvEventSource {
    /// Always true.
    pub enable_kv_cache_events: bool,
    /// How they are published.
    pub publisher: &'static str,
    /// How messages are written; vllm-router 0.1.17 follows no source that does not say it, nor the next field.
    pub encoding: &'static str,
    /// Which shapes messages have: 1 are maps with `type`, as vLLM 0.33 writes them.
    pub schema_version: u32,
    /// Where subscribers find them, as the command line says it.
    pub endpoint: String,
    /// Where they ask again for events that they missed.
    pub replay_endpoint: Option<String>,
    /// How many batches are kept for that.
    pub buffer_steps: usize,
    /// How many batches may wait for one subscriber.
    pub hwm: usize,
    /// How many batches may wait to be published.
    pub max_queue_size: usize,
    /// What each message begins with.
    pub topic: String,
    /// The tokens of a block, which `/get_server_info` says.
    #[serde(skip)]
    #[schema(ignore)]
    pub block_size: usize,
}
