//! What engines count and time, under vLLM's names (`v1/metrics/loggers.py`).
//!
//! Owns the handles of what only an engine can see: its cache, its steps, its queue, and when a token was sampled, which
//! may be long before somebody reads it. Refuses what a generation tells as a whole, which is counted where it is decoded.

use std::time::{Duration, Instant};

use metrics::{Counter, Histogram, counter, gauge, histogram};

use super::{EngineOutput, request_times::RequestTimes};

/// Handles of the process's recorder; cheap to use for every step.
#[derive(Clone)]
pub struct EngineMeters {
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

/// Handles of what is counted of drafts (`v1/spec_decode/metrics.py`); not there unless tokens are drafted.
#[derive(Clone)]
pub(crate) struct DraftMeters {
    drafts: Counter,
    tokens: Counter,
    accepted: Counter,
    /// By the place in the draft.
    accepted_at: Vec<Counter>,
}

impl DraftMeters {
    /// Handles of the recorder that is installed now, for drafts of at most `longest` tokens.
    pub(crate) fn new(longest: usize) -> Self {
        let at = |place: usize| counter!("vllm:spec_decode_num_accepted_tokens_per_pos_total", "position" => place.to_string());
        Self {
            drafts: counter!("vllm:spec_decode_num_drafts_total"),
            tokens: counter!("vllm:spec_decode_num_draft_tokens_total"),
            accepted: counter!("vllm:spec_decode_num_accepted_tokens_total"),
            accepted_at: (0..longest).map(at).collect(),
        }
    }

    /// A draft of so many tokens was computed, the first `accepted` of which were what was sampled.
    pub(crate) fn drafted(&self, tokens: usize, accepted: usize) {
        self.drafts.increment(1);
        self.tokens.increment(tokens as u64);
        self.accepted.increment(accepted as u64);
        for counter in self.accepted_at.iter().take(accepted) {
            counter.increment(1);
        }
    }
}

/// Handles of what is counted of every token; cheap to use for every sequence.
#[derive(Debug, Clone)]
pub(crate) struct SamplingMeters {
    prompt_tokens: Counter,
    computed_tokens: Counter,
    cached_tokens: Counter,
    cache_hits: Counter,
    generation_tokens: Counter,
    time_to_first_token: Histogram,
    inter_token_latency: Histogram,
}

/// Counts and times the tokens of one sequence as they are sampled.
#[derive(Debug)]
pub(crate) struct SamplingMeter {
    meters: SamplingMeters,
    arrived: Instant,
    scheduled: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    prompt_tokens: usize,
    cached_tokens: usize,
}

impl SamplingMeters {
    /// Handles of the recorder that is installed now.
    pub(crate) fn new() -> Self {
        Self {
            prompt_tokens: counter!("vllm:prompt_tokens_total"),
            computed_tokens: counter!("vllm:prompt_tokens_by_source_total", "source" => "local_compute"),
            cached_tokens: counter!("vllm:prompt_tokens_cached_total"),
            cache_hits: counter!("vllm:prompt_tokens_by_source_total", "source" => "local_cache_hit"),
            generation_tokens: counter!("vllm:generation_tokens_total"),
            time_to_first_token: histogram!("vllm:time_to_first_token_seconds"),
            inter_token_latency: histogram!("vllm:inter_token_latency_seconds"),
        }
    }

    /// Starts the clock of a sequence whose request has `arrived`.
    pub(crate) fn start(&self, prompt_tokens: usize, arrived: Instant) -> SamplingMeter {
        SamplingMeter {
            meters: self.clone(),
            arrived,
            scheduled: None,
            first_token: None,
            last_token: None,
            prompt_tokens,
            cached_tokens: 0,
        }
    }
}

impl SamplingMeter {
    /// Takes note that the sequence begins to run; only the first time counts, as in vLLM.
    pub(crate) fn scheduled(&mut self) {
        self.scheduled.get_or_insert_with(Instant::now);
    }

    /// Whether a token of the sequence was sampled.
    pub(crate) fn has_sampled(&self) -> bool {
        self.first_token.is_some()
    }

    /// How long the sequence was in each phase so far.
    pub(crate) fn times(&self) -> RequestTimes {
        let now = Instant::now();
        let scheduled = self.scheduled.unwrap_or(now);
        let first_token = self.first_token.unwrap_or(now);
        RequestTimes {
            queued: scheduled.saturating_duration_since(self.arrived),
            prefill: first_token.saturating_duration_since(scheduled),
            decode: self.last_token.map_or(Duration::ZERO, |last| last - first_token),
        }
    }

    /// Takes note of an output of the sequence.
    pub(crate) fn observe(&mut self, output: &EngineOutput) {
        match output {
            EngineOutput::Prompt(prompt) => self.cached_tokens = prompt.cached_tokens,
            EngineOutput::Token(_) => self.sampled(),
            EngineOutput::Weights(_) | EngineOutput::Routes(_) | EngineOutput::Times(_) | EngineOutput::Finished(_) => {
            }
        }
    }

    fn sampled(&mut self) {
        let now = Instant::now();
        match self.last_token.replace(now) {
            None => {
                self.first_token = Some(now);
                self.count_prompt();
                self.meters.time_to_first_token.record(now - self.arrived);
            }
            Some(last) => self.meters.inter_token_latency.record(now - last),
        }
        self.meters.generation_tokens.increment(1);
    }

    /// A prompt counts once it is computed.
    fn count_prompt(&self) {
        let cached = self.cached_tokens.min(self.prompt_tokens);
        self.meters.prompt_tokens.increment(self.prompt_tokens as u64);
        self.meters.computed_tokens.increment((self.prompt_tokens - cached) as u64);
        self.meters.cached_tokens.increment(cached as u64);
        self.meters.cache_hits.increment(cached as u64);
    }
}

impl EngineMeters {
    /// Handles of the recorder that is installed now.
    pub fn of_recorder() -> Self {
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

    /// The cache has `blocks` blocks of `block_size` tokens, and room for so many sequences of the greatest length at once.
    pub fn cache_config(block_size: usize, blocks: usize, max_concurrency: f64) {
        let info = gauge!(
            "vllm:cache_config_info",
            "block_size" => block_size.to_string(),
            "cache_dtype" => "auto",
            "enable_prefix_caching" => "True",
            // As Python writes it.
            "kv_cache_max_concurrency" => format!("{max_concurrency:?}"),
            "kv_cache_size_tokens" => (block_size * blocks).to_string(),
            "num_gpu_blocks" => blocks.to_string(),
        );
        info.set(1.0);
    }

    /// The cache was asked for `queries` tokens of a prompt and had `hits` of them.
    pub fn prefix_cache(&self, queries: usize, hits: usize) {
        self.prefix_cache_queries.increment(queries as u64);
        self.prefix_cache_hits.increment(hits as u64);
        self.device_hits.increment(hits as u64);
    }

    /// A sequence lost its blocks to another one.
    pub fn preempted(&self) {
        self.preemptions.increment(1);
    }

    /// One step gave `tokens` tokens: those that it sampled, and those computed of the prompts whose first token is among
    /// them.
    #[expect(clippy::cast_precision_loss, reason = "no step has 2^52 tokens")]
    pub fn iteration(&self, tokens: usize) {
        self.iteration_tokens.record(tokens as f64);
    }

    /// A sequence ended that had lost its blocks `preemptions` times.
    pub fn finished(&self, times: RequestTimes, preemptions: u32) {
        self.queue_time.record(times.queued);
        self.prefill_time.record(times.prefill);
        self.decode_time.record(times.decode);
        self.inference_time.record(times.prefill + times.decode);
        self.request_preemptions.record(preemptions);
    }
}
