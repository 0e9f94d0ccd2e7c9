//! The line that says now and then how much is computed, in vLLM's words.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::Metrics;
use crate::engine::Engine;

/// How often the line is written; vLLM's interval.
const INTERVAL: Duration = Duration::from_secs(10);

/// What was counted up to some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    prompt_tokens: u64,
    generation_tokens: u64,
}

impl Metrics {
    /// Logs how much was computed, for ever; an engine that had nothing to do is silent.
    pub async fn log_statistics(self, engine: Arc<dyn Engine>) {
        let mut interval = tokio::time::interval(INTERVAL);
        interval.tick().await;
        let (mut before, mut since) = (self.counted(), Instant::now());
        let mut was_idle = true;
        loop {
            interval.tick().await;
            let (now, time) = (self.counted(), Instant::now());
            let idle = now == before;
            // The first idle line tells that the work is done.
            if !(idle && was_idle) {
                let load = engine.load();
                let seconds = (time - since).as_secs_f64();
                let rate = |now: u64, before: u64| per_second(now - before, seconds);
                tracing::info!(
                    "Engine 000: Avg prompt throughput: {:.1} tokens/s, Avg generation throughput: {:.1} tokens/s, \
                     Running: {} reqs, Waiting: {} reqs, KV cache usage: {:.1}%, Prefix cache hit rate: {:.1}%",
                    rate(now.prompt_tokens, before.prompt_tokens),
                    rate(now.generation_tokens, before.generation_tokens),
                    load.running,
                    load.waiting,
                    load.kv_cache_usage * 100.0,
                    self.hit_rate() * 100.0,
                );
            }
            (before, since, was_idle) = (now, time, idle);
        }
    }

    fn counted(&self) -> Counted {
        let prompts = self.registry.counted("vllm:prompt_tokens_total");
        let cached = self.registry.counted("vllm:prompt_tokens_cached_total");
        Counted {
            prompt_tokens: prompts.saturating_sub(cached),
            generation_tokens: self.registry.counted("vllm:generation_tokens_total"),
        }
    }

    /// The share of the tokens that the prefix cache had, among all that it was asked for.
    fn hit_rate(&self) -> f64 {
        let queries = self.registry.counted("vllm:prefix_cache_queries_total");
        let hits = self.registry.counted("vllm:prefix_cache_hits_total");
        #[expect(clippy::cast_precision_loss, reason = "a share of two counts")]
        if queries == 0 { 0.0 } else { hits as f64 / queries as f64 }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}
