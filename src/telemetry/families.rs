//! Every metric: its name, vLLM's words about it, its labels and, for times and sizes, vLLM's buckets
//! (`v1/metrics/loggers.py`, `v1/metrics/buckets.py`; the HTTP ones are prometheus-fastapi-instrumentator's).
//!
//! Families are shown in this order, those of vLLM in vLLM's.

/// What is told about one metric.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: MetricKind,
    pub(super) labels: Labels,
    /// Further labels of series that are there, and 0, from the start.
    pub(super) series: &'static [&'static [(&'static str, &'static str)]],
}

/// How a metric is counted.
#[derive(Debug, Clone, Copy)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram(Buckets),
    /// Number and sum.
    Summary,
    /// The series of another family, under the name that it had in older versions of vLLM.
    Older {
        of: &'static str,
    },
}

/// Upper bounds, ascending.
#[derive(Debug, Clone, Copy)]
pub(super) enum Buckets {
    Fixed(&'static [f64]),
    /// 1, 2, 5, 10, … up to the longest sequence.
    Tokens,
}

/// The labels that the process puts on a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Labels {
    /// `engine` and `model_name`; the engine is the index of a data-parallel rank, of which there is one.
    EngineAndModel,
    Engine,
    Model,
    None,
}

impl Buckets {
    /// The bounds where a sequence has at most `max_model_len` tokens.
    pub(super) fn bounds(self, max_model_len: usize) -> Vec<f64> {
        match self {
            Self::Fixed(bounds) => bounds.to_vec(),
            Self::Tokens => {
                let decades = (0..=18).map(|exponent| 10_u64.pow(exponent));
                let steps = decades.flat_map(|decade| [1, 2, 5].map(|step| decade.saturating_mul(step)));
                #[expect(clippy::cast_precision_loss, reason = "1, 2 and 5 times powers of ten have few bits")]
                steps.take_while(|bound| *bound <= max_model_len as u64).map(|bound| bound as f64).collect()
            }
        }
    }
}

const NO_LABELS: &[&[(&str, &str)]] = &[&[]];
const PREFIX_SOURCES: &[&[(&str, &str)]] = &[
    &[("source", "device")],
    &[("source", "host")],
    &[("source", "p2p")],
    &[("source", "disk")],
    &[("source", "external_unspecified")],
];
const FINISHED: &[&[(&str, &str)]] = &[
    &[("finished_reason", "stop")],
    &[("finished_reason", "length")],
    &[("finished_reason", "abort")],
    &[("finished_reason", "error")],
    &[("finished_reason", "repetition")],
];

const fn engine(name: &'static str, kind: MetricKind, help: &'static str) -> Family {
    Family { name, help, kind, labels: Labels::EngineAndModel, series: NO_LABELS }
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    engine(name, MetricKind::Counter, help)
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    engine(name, MetricKind::Gauge, help)
}

const fn tokens(name: &'static str, help: &'static str) -> Family {
    engine(name, MetricKind::Histogram(Buckets::Tokens), help)
}

const fn times(name: &'static str, bounds: &'static [f64], help: &'static str) -> Family {
    engine(name, MetricKind::Histogram(Buckets::Fixed(bounds)), help)
}

const fn older(name: &'static str, of: &'static str, help: &'static str) -> Family {
    engine(name, MetricKind::Older { of }, help)
}

const fn http(name: &'static str, kind: MetricKind, help: &'static str) -> Family {
    Family { name, help, kind, labels: Labels::None, series: &[] }
}

impl Family {
    const fn with_series(mut self, series: &'static [&'static [(&'static str, &'static str)]]) -> Self {
        self.series = series;
        self
    }

    const fn with_labels(mut self, labels: Labels) -> Self {
        self.labels = labels;
        self
    }
}

/// Seconds of a store in the same network: from a tenth of a millisecond to the longest that a turn may wait.
const STORE_SECONDS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0];
/// Seconds of calls of the control plane.
const OPERATION_SECONDS: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// Seconds of a request and of its phases.
const REQUEST_SECONDS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
const FIRST_TOKEN_SECONDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const TOKEN_SECONDS: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const STEP_TOKENS: &[f64] = &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
const SEQUENCES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
const PREEMPTIONS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];
const HTTP_SECONDS: &[f64] = &[0.1, 0.5, 1.0];
const HTTP_FINE_SECONDS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0, 30.0, 60.0,
];

/// The metrics, in the order of the page.
pub(super) const FAMILIES: &[Family] = &[
    gauge("vllm:num_requests_running", "Number of requests in model execution batches."),
    gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed."),
    gauge(
        "vllm:num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = \
         deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals \
         vllm:num_requests_waiting.",
    )
    .with_series(&[&[("reason", "capacity")], &[("reason", "deferred")]]),
    gauge(
        "vllm:engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 \
         means sleep level 1; discard_all = 1 means sleep level 2.",
    )
    .with_series(&[
        &[("sleep_state", "awake")],
        &[("sleep_state", "weights_offloaded")],
        &[("sleep_state", "discard_all")],
    ]),
    gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage."),
    older(
        "vllm:gpu_cache_usage_perc",
        "vllm:kv_cache_usage_perc",
        "The older name of vllm:kv_cache_usage_perc.",
    ),
    counter("vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens."),
    counter("vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens."),
    older(
        "vllm:gpu_prefix_cache_queries_total",
        "vllm:prefix_cache_queries_total",
        "The older name of vllm:prefix_cache_queries.",
    ),
    older(
        "vllm:gpu_prefix_cache_hits_total",
        "vllm:prefix_cache_hits_total",
        "The older name of vllm:prefix_cache_hits.",
    ),
    counter(
        "vllm:external_prefix_cache_queries_total",
        "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried \
         tokens.",
    ),
    counter(
        "vllm:external_prefix_cache_hits_total",
        "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.",
    ),
    counter("vllm:mm_cache_queries_total", "Multi-modal cache queries, in terms of number of queried items."),
    counter("vllm:mm_cache_hits_total", "Multi-modal cache hits, in terms of number of cached items."),
    counter("vllm:num_preemptions_total", "Cumulative number of preemption from the engine."),
    counter("vllm:prompt_tokens_total", "Number of prefill tokens processed."),
    counter("vllm:prompt_tokens_by_source_total", "Number of prompt tokens by source.").with_series(&[
        &[("source", "local_compute")],
        &[("source", "local_cache_hit")],
        &[("source", "external_kv_transfer")],
    ]),
    counter("vllm:prompt_tokens_cached_total", "Number of cached prompt tokens (local + external)."),
    counter(
        "vllm:prompt_tokens_cached_by_source_total",
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), \
         disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to \
         vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
    )
    .with_series(PREFIX_SOURCES),
    counter("vllm:generation_tokens_total", "Number of generation tokens processed."),
    counter("vllm:request_success_total", "Count of successfully processed requests.").with_series(FINISHED),
    counter(
        "vllm:admission_rejections_total",
        "Number of admission attempts rejected by a queue limit, by reason.",
    )
    .with_labels(Labels::Model)
    .with_series(&[&[("reason", "max_num_queued_reqs")], &[("reason", "max_num_queued_tokens")]]),
    counter(
        "vllm:tool_call_parser_invocations_total",
        "Total number of ToolParser invocations. Non-streaming increments once per choice; streaming increments once per \
         delta.",
    )
    .with_labels(Labels::Model)
    .with_series(&[]),
    tokens("vllm:request_prompt_tokens", "Number of prefill tokens processed."),
    tokens("vllm:request_generation_tokens", "Number of generation tokens processed."),
    times("vllm:iteration_tokens_total", STEP_TOKENS, "Histogram of number of tokens per engine_step."),
    tokens("vllm:request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens."),
    times("vllm:request_params_n", SEQUENCES, "Histogram of the n request parameter."),
    tokens("vllm:request_params_max_tokens", "Histogram of the max_tokens request parameter."),
    times(
        "vllm:time_to_first_token_seconds",
        FIRST_TOKEN_SECONDS,
        "Histogram of time to first token in seconds.",
    ),
    times("vllm:inter_token_latency_seconds", TOKEN_SECONDS, "Histogram of inter-token latency in seconds."),
    older(
        "vllm:time_per_output_token_seconds",
        "vllm:inter_token_latency_seconds",
        "The older name of vllm:inter_token_latency_seconds.",
    ),
    times(
        "vllm:request_time_per_output_token_seconds",
        TOKEN_SECONDS,
        "Histogram of time_per_output_token_seconds per request.",
    ),
    times("vllm:e2e_request_latency_seconds", REQUEST_SECONDS, "Histogram of e2e request latency in seconds."),
    times(
        "vllm:request_queue_time_seconds",
        REQUEST_SECONDS,
        "Histogram of time spent in WAITING phase for request.",
    ),
    times(
        "vllm:request_inference_time_seconds",
        REQUEST_SECONDS,
        "Histogram of time spent in RUNNING phase for request.",
    ),
    times(
        "vllm:request_prefill_time_seconds",
        REQUEST_SECONDS,
        "Histogram of time spent in PREFILL phase for request.",
    ),
    times(
        "vllm:request_decode_time_seconds",
        REQUEST_SECONDS,
        "Histogram of time spent in DECODE phase for request.",
    ),
    times(
        "vllm:request_num_preemptions",
        PREEMPTIONS,
        "Histogram of the number of times a request was preempted.",
    ),
    tokens(
        "vllm:request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
    ),
    counter("vllm:spec_decode_num_drafts_total", "Number of spec decoding drafts.").with_series(&[]),
    counter("vllm:spec_decode_num_draft_tokens_total", "Number of draft tokens.").with_series(&[]),
    counter("vllm:spec_decode_num_accepted_tokens_total", "Number of accepted tokens.").with_series(&[]),
    counter("vllm:spec_decode_num_accepted_tokens_per_pos_total", "Accepted tokens per draft position.").with_series(&[]),
    gauge("vllm:cache_config_info", "Information of the LLMEngine CacheConfig")
        .with_labels(Labels::Engine)
        .with_series(&[]),
    times(
        "vllm:rl_weight_update_operation_duration_seconds",
        OPERATION_SECONDS,
        "Histogram of the duration of weight update operations in seconds.",
    )
    .with_series(&[]),
    gauge("vllm:rl_weight_update_operations_in_flight", "Number of weight update operations in flight.").with_series(&[]),
    times(
        "vllm:sleep_mode_operation_duration_seconds",
        OPERATION_SECONDS,
        "Histogram of the duration of sleep mode operations in seconds.",
    )
    .with_series(&[]),
    gauge("vllm:sleep_mode_operations_in_flight", "Number of sleep mode operations in flight.").with_series(&[]),
    http("http_requests_total", MetricKind::Counter, "Total number of requests by method, status and handler."),
    http(
        "http_request_size_bytes",
        MetricKind::Summary,
        "Content length of incoming requests by handler. Only value of header is respected. Otherwise ignored. No \
         percentile calculated. ",
    ),
    http(
        "http_response_size_bytes",
        MetricKind::Summary,
        "Content length of outgoing responses by handler. Only value of header is respected. Otherwise ignored. No \
         percentile calculated. ",
    ),
    http(
        "http_request_duration_highr_seconds",
        MetricKind::Histogram(Buckets::Fixed(HTTP_FINE_SECONDS)),
        "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
    )
    .with_series(NO_LABELS),
    http(
        "http_request_duration_seconds",
        MetricKind::Histogram(Buckets::Fixed(HTTP_SECONDS)),
        "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
    ),
    counter("tito:capture_failures_total", "Turns that could not be captured.").with_series(&[]),
    counter("tito:continuity_cache_ambiguous_keys_total", "Keys of the continuity cache that two turns shared.")
        .with_series(&[]),
    gauge("tito:continuity_cache_bytes", "Bytes that the continuity cache holds.").with_series(&[]),
    counter("tito:continuity_cache_evictions_total", "Turns that the continuity cache gave up, by cause.")
        .with_series(&[]),
    counter("tito:continuity_cache_lookups_total", "Conversations looked up in the continuity cache, by outcome.")
        .with_series(&[]),
    gauge("tito:continuity_cache_turns", "Turns that the continuity cache holds.").with_series(&[]),
    counter("tito:continuity_store_lookups_total", "Conversations looked up in the continuity store, by outcome.")
        .with_series(&[]),
    times("tito:continuity_store_seconds", STORE_SECONDS, "How long turns waited for the continuity store, by operation.")
        .with_series(&[]),
    counter("tito:continuity_store_writes_total", "Turns written to the continuity store, by outcome.").with_series(&[]),
    gauge("tito:num_requests_paused", "Sequences that wait until their clients read, or until a slow structured output is followed.")
        .with_series(&[]),
    counter(
        "tito:prefix_repair_total",
        "Conversations by what became of their earlier ids, why, and where the ids came from.",
    )
    .with_series(&[]),
    counter("tito:prompt_ids_total", "Prompt ids by where they came from.").with_series(&[]),
    counter("tito:stalled_total", "Connections, requests and streams that were ended because nothing moved for too long.")
        .with_series(&[]),
    counter("tito:trace_spans_dropped_total", "Spans that were not sent to the collector of traces, by reason.").with_series(&[]),
    counter("tito:trace_spans_sent_total", "Spans that the collector of traces took.").with_series(&[]),
    counter("tito:trajectories_removed_total", "Captured trajectories that were removed, by reason.").with_series(&[
        &[("reason", "deleted")],
        &[("reason", "size")],
        &[("reason", "ttl")],
    ]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_buckets_end_at_the_longest_sequence() {
        let bounds = Buckets::Tokens.bounds(4096);
        assert_eq!(bounds, [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0]);
        assert_eq!(Buckets::Tokens.bounds(5), [1.0, 2.0, 5.0]);
    }

    #[test]
    fn names_are_told_once_and_older_ones_point_to_a_family() {
        for (index, family) in FAMILIES.iter().enumerate() {
            assert!(FAMILIES[..index].iter().all(|other| other.name != family.name), "{}", family.name);
            if let MetricKind::Older { of } = family.kind {
                assert!(FAMILIES.iter().any(|other| other.name == of), "{}", family.name);
            }
            if let MetricKind::Histogram(buckets) = family.kind {
                assert!(buckets.bounds(1 << 20).is_sorted_by(|low, high| low < high), "{}", family.name);
            }
        }
    }
}
