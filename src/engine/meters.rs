//! What engines count and time, under vLLM's names (`v1/metrics/loggers.py`).
//!
//! Owns the handles of what only an engine can see: its cache, its steps, its queue. Refuses what the tokens of a
//! generation tell by themselves, which is counted where they are decoded.

use std::time::Duration;

use metrics::{Counter, Histogram, counter, gauge, histogram};

/// Handles of the process's recorder; cheap to use for every step.
#[derive(Clone)]
pub(crate) struct EngineMeters {
    prefix_cache_queries: Counter,
    prefix_cache_hits: Counter,
    device_hits: Counter,
    preemptions: Counter,
    iteration_tokens: Histogram,
    queue_time: Histogram,
    prefill_time: Histogram,
    decode_time: Histogram,
    inference_time: Histogram,
    request_preemptions: Histogram,
}

/// How long one sequence was in each phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RequestTimes {
    /// From its arrival to its first step.
    pub(crate) queued: Duration,
    /// From its first step to its first token.
    pub(crate) prefill: Duration,
    /// From its first token to its last one.
    pub(crate) decode: Duration,
}

impl EngineMeters {
    /// Handles of the recorder that is installed now.
    pub(crate) fn new() -> Self {
        Self {
            prefix_cache_queries: counter!("vllm:prefix_cache_queries_total"),
            prefix_cache_hits: counter!("vllm:prefix_cache_hits_total"),
            device_hits: counter!("vllm:prompt_tokens_cached_by_source_total", "source" => "device"),
            preemptions: counter!("vllm:num_preemptions_total"),
            iteration_tokens: histogram!("vllm:iteration_tokens_total"),
            queue_time: histogram!("vllm:request_queue_time_seconds"),
            prefill_time: histogram!("vllm:request_prefill_time_seconds"),
            decode_time: histogram!("vllm:request_decode_time_seconds"),
            inference_time: histogram!("vllm:request_inference_time_seconds"),
            request_preemptions: histogram!("vllm:request_num_preemptions"),
        }
    }

    /// The cache has `blocks` blocks of `block_size` tokens.
    pub(crate) fn cache_config(block_size: usize, blocks: usize) {
        let info = gauge!(
            "vllm:cache_config_info",
            "block_size" => block_size.to_string(),
            "cache_dtype" => "auto",
            "enable_prefix_caching" => "True",
            "kv_cache_size_tokens" => (block_size * blocks).to_string(),
            "num_gpu_blocks" => blocks.to_string(),
        );
        info.set(1.0);
    }

    /// The cache was asked for `queries` tokens of a prompt and had `hits` of them.
    pub(crate) fn prefix_cache(&self, queries: usize, hits: usize) {
        self.prefix_cache_queries.increment(queries as u64);
        self.prefix_cache_hits.increment(hits as u64);
        self.device_hits.increment(hits as u64);
    }

    /// A sequence lost its blocks to another one.
    pub(crate) fn preempted(&self) {
        self.preemptions.increment(1);
    }

    /// One step computed `tokens` tokens, of prompts and sampled ones.
    #[expect(clippy::cast_precision_loss, reason = "no step has 2^52 tokens")]
    pub(crate) fn iteration(&self, tokens: usize) {
        self.iteration_tokens.record(tokens as f64);
    }

    /// A sequence ended that had lost its blocks `preemptions` times.
    pub(crate) fn finished(&self, times: RequestTimes, preemptions: u32) {
        self.queue_time.record(times.queued);
        self.prefill_time.record(times.prefill);
        self.decode_time.record(times.decode);
        self.inference_time.record(times.prefill + times.decode);
        self.request_preemptions.record(preemptions);
    }
}
