//! Every metric: its name, what it is about and, for times and sizes, vLLM's buckets (`v1/metrics/buckets.py`).

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// A histogram.
pub(super) struct Family {
    pub(super) name: &'static str,
    help: &'static str,
    /// Upper bounds, ascending.
    pub(super) buckets: &'static [f64],
}

const fn family(name: &'static str, help: &'static str, buckets: &'static [f64]) -> Family {
    Family { name, help, buckets }
}

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
/// vLLM ends the series at the longest sequence.
const TOKENS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6];
const STEP_TOKENS: &[f64] = &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
const SEQUENCES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
const PREEMPTIONS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];
/// Of the HTTP layer.
const RESPONSE_SECONDS: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 480.0];

pub(super) const HISTOGRAMS: &[Family] = &[
    family("http_request_duration_seconds", "Seconds until the body of a response begins.", RESPONSE_SECONDS),
    family("vllm:e2e_request_latency_seconds", "Seconds from a request to its last token.", REQUEST_SECONDS),
    family("vllm:inter_token_latency_seconds", "Seconds between two tokens of a request.", TOKEN_SECONDS),
    family("vllm:iteration_tokens_total", "Tokens of one engine step.", STEP_TOKENS),
    family("vllm:request_decode_time_seconds", "Seconds from the first token to the last one.", REQUEST_SECONDS),
    family("vllm:request_generation_tokens", "Tokens sampled for a request.", TOKENS),
    family("vllm:request_inference_time_seconds", "Seconds from the first step to the last token.", REQUEST_SECONDS),
    family("vllm:request_max_num_generation_tokens", "Most tokens sampled for one of n sequences.", TOKENS),
    family("vllm:request_num_preemptions", "Times that a request was preempted.", PREEMPTIONS),
    family("vllm:request_params_max_tokens", "The request's max_tokens.", TOKENS),
    family("vllm:request_params_n", "The request's n.", SEQUENCES),
    family("vllm:request_prefill_kv_computed_tokens", "Tokens of a prompt that were not cached.", TOKENS),
    family("vllm:request_prefill_time_seconds", "Seconds from the first step to the first token.", REQUEST_SECONDS),
    family("vllm:request_prompt_tokens", "Tokens of a prompt.", TOKENS),
    family("vllm:request_queue_time_seconds", "Seconds that a request waited.", REQUEST_SECONDS),
    family(
        "vllm:request_time_per_output_token_seconds",
        "Seconds for each token of a request after the first one.",
        TOKEN_SECONDS,
    ),
    family("vllm:time_to_first_token_seconds", "Seconds from a request to its first token.", FIRST_TOKEN_SECONDS),
];

const COUNTERS: [(&str, &str); 9] = [
    ("http_requests_total", "Requests by route, method and kind of status."),
    ("vllm:generation_tokens_total", "Tokens that were sampled."),
    ("vllm:num_preemptions_total", "Times that a sequence lost its cache to another one."),
    ("vllm:prefix_cache_hits_total", "Prompt tokens that the prefix cache had."),
    ("vllm:prefix_cache_queries_total", "Prompt tokens that the prefix cache was asked for."),
    ("vllm:prompt_tokens_cached_total", "Prompt tokens that were not computed again."),
    ("vllm:prompt_tokens_total", "Prompt tokens, cached ones included."),
    ("vllm:request_success_total", "Requests that ended, by what ended them."),
    (
        "vllm:tool_call_parser_invocations_total",
        "Answers that were read for tool calls, and deltas of streams, by whether one was found.",
    ),
];

/// Tells the recorder that is installed now what the families are about.
pub(super) fn describe() {
    for Family { name, help, .. } in HISTOGRAMS {
        describe_histogram!(*name, *help);
    }
    for (name, help) in COUNTERS {
        describe_counter!(name, help);
    }
    describe_gauge!("vllm:cache_config_info", "How the cache of keys and values is laid out, in the labels.");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::recorder;

    #[test]
    fn every_family_is_exposed_with_its_kind_its_help_and_its_buckets() {
        let recorder = recorder("tiny").unwrap();
        metrics::with_local_recorder(&recorder, || {
            for family in HISTOGRAMS {
                metrics::histogram!(family.name).record(0.0);
            }
            for (name, _) in COUNTERS {
                metrics::counter!(name).increment(1);
            }
            metrics::gauge!("vllm:cache_config_info", "block_size" => "16").set(1.0);
        });
        let text = recorder.handle().render();
        let has = |line: &str| assert!(text.lines().any(|found| found == line), "{line}: {text}");
        for Family { name, help, buckets } in HISTOGRAMS {
            has(&format!("# HELP {name} {help}"));
            has(&format!("# TYPE {name} histogram"));
            for bound in *buckets {
                has(&format!("{name}_bucket{{model_name=\"tiny\",engine=\"0\",le=\"{bound}\"}} 1"));
            }
            assert!(buckets.is_sorted_by(|low, high| low < high), "{name}");
        }
        for (name, help) in COUNTERS {
            has(&format!("# HELP {name} {help}"));
            has(&format!("# TYPE {name} counter"));
        }
        has("# TYPE vllm:cache_config_info gauge");
        has("vllm:cache_config_info{model_name=\"tiny\",engine=\"0\",block_size=\"16\"} 1");
    }
}
