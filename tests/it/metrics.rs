//! `/metrics`.

use std::collections::BTreeSet;

use serde_json::json;
use tito::{
    engine::{EngineLoad, scripted::Gate},
    telemetry::Metrics,
};

use tower::ServiceExt;

use crate::it::app::{TestApp, posted};

fn sample(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[tokio::test]
async fn running_and_waiting_sequences_are_shown_under_vllms_names() {
    let app = TestApp::new().gate(&Gate::shut()).seats(1);
    let body = json!({ "prompt": "hello", "stream": true });
    let idle = app.get("/metrics").await;
    assert_eq!(sample(&idle.text, "vllm:num_requests_running"), Some(0.0));
    let running = app.open("/v1/completions", body.clone()).await;
    let waiting = [app.open("/v1/completions", body.clone()).await, app.open("/v1/completions", body).await];
    let busy = app.get("/metrics").await;
    assert_eq!(sample(&busy.text, "vllm:num_requests_running"), Some(1.0));
    assert_eq!(sample(&busy.text, "vllm:num_requests_waiting"), Some(2.0));
    assert_eq!(sample_with(&busy.text, "vllm:num_requests_waiting_by_reason", "capacity"), Some(2.0));
    assert_eq!(busy.headers["content-type"], "text/plain; version=1.0.0; charset=utf-8");
    assert!(busy.text.contains("vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 1.0\n"), "{}", busy.text);
    drop((running, waiting));
    let idle = app.get("/metrics").await;
    assert_eq!(sample(&idle.text, "vllm:num_requests_waiting"), Some(0.0));
}

/// What vLLM shows and tito does not, by the beginning of its name; docs/vllm-compatibility.md says why.
const MISSING: [&str; 2] = ["python_", "vllm:estimated_"];
/// What tito shows and vLLM 0.32 does not: names of older versions, and tito's own.
const ADDED: [&str; 5] = [
    "vllm:gpu_cache_usage_perc",
    "vllm:gpu_prefix_cache_",
    "vllm:time_per_output_token_seconds",
    "tito:",
    "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"4xx\"}",
];

/// Comments and series, but for those that begin with one of `without`.
fn series<'t>(lines: impl Iterator<Item = &'t str>, without: &[&str]) -> BTreeSet<&'t str> {
    let is_wanted = |line: &&str| {
        let name = line.trim_start_matches("# HELP ").trim_start_matches("# TYPE ");
        // Without a cache, the scripted engine has nothing to say about it.
        !without.iter().any(|prefix| name.starts_with(prefix)) && !name.starts_with("vllm:cache_config_info")
    };
    lines.filter(is_wanted).collect()
}

fn without_value(line: &str) -> &str {
    if line.starts_with('#') { line } else { line.rsplit_once(' ').map_or(line, |(series, _)| series) }
}

#[tokio::test]
async fn the_page_has_vllms_names_words_labels_and_buckets() {
    // There is one recorder a process, and each test is its own.
    let metrics = Metrics::install("smollm2", 4096).unwrap();
    let app = TestApp::new().says("hello").names(&["smollm2"]);
    app.post("/v1/completions", json!({ "prompt": "hello" })).await.ok();
    app.get("/v1/models").await.ok();
    // Never counted.
    app.get("/health").await;
    app.get("/metrics").await;
    let ours = metrics.render(EngineLoad::default(), "default", None);
    let ours = series(ours.lines().map(without_value), &ADDED);
    let theirs = series(include_str!("../golden/vllm/metrics.txt").lines(), &MISSING);
    assert_eq!(theirs.difference(&ours).collect::<Vec<_>>(), Vec::<&&str>::new(), "not shown");
    assert_eq!(ours.difference(&theirs).collect::<Vec<_>>(), Vec::<&&str>::new(), "shown, and not by vLLM");
}

#[tokio::test]
async fn requests_and_prompts_are_counted_by_route_and_outcome() {
    let metrics = Metrics::install("tiny", 4096).unwrap();
    let app = TestApp::new().says("hello").cached_tokens(3);
    app.get("/v1/nope/1").await;
    app.get("/v1/nope/2").await;
    app.post("/v1/completions", json!({ "prompt": [5, 6, 7, 8, 9], "max_tokens": 7 })).await.ok();
    app.post("/v1/completions", json!({ "prompt": [5, 6, 7, 8, 9], "n": 3, "temperature": 1 })).await.ok();
    app.post("/v1/completions", json!({ "prompt": "" })).await;
    let stream = app.post("/v1/completions", json!({ "prompt": "hello", "stream": true })).await;
    assert_eq!(stream.status, 200);
    app.post("/tokenize", json!({ "messages": [{ "role": "user", "content": "hello" }] })).await.ok();
    let text = metrics.render(EngineLoad::default(), "default", None);
    let count = |handler: &str, method: &str, status: &str| {
        let labels = format!("handler=\"{handler}\",method=\"{method}\",status=\"{status}\"");
        sample_with(&text, "http_requests_total", &labels)
    };
    assert_eq!(count("/v1/completions", "POST", "2xx"), Some(3.0), "{text}");
    assert_eq!(count("/v1/completions", "POST", "4xx"), Some(1.0), "{text}");
    // Clients cannot make new series.
    assert_eq!(count("none", "GET", "4xx"), Some(2.0), "{text}");
    assert!(!text.contains("nope"), "{text}");
    assert_eq!(sample_with(&text, "tito:prefix_repair_total", "outcome=\"fresh\""), Some(1.0), "{text}");
    for (name, labels, value) in [
        ("vllm:generation_tokens_total", "engine=\"0\"", 10.0),
        ("vllm:request_success_total", "finished_reason=\"stop\"", 5.0),
        ("vllm:request_success_total", "finished_reason=\"error\"", 0.0),
        ("vllm:time_to_first_token_seconds_count", "", 5.0),
        ("vllm:e2e_request_latency_seconds_count", "", 5.0),
        ("vllm:request_generation_tokens_sum", "", 10.0),
        ("vllm:request_max_num_generation_tokens_sum", "", 6.0),
        ("vllm:request_params_n_count", "", 3.0),
        ("vllm:request_params_n_sum", "", 5.0),
        ("vllm:prompt_tokens_total", "", 21.0),
        ("vllm:prompt_tokens_cached_total", "engine=\"0\"", 12.0),
        ("vllm:prompt_tokens_by_source_total", "source=\"local_compute\"", 9.0),
        ("vllm:prompt_tokens_by_source_total", "source=\"local_cache_hit\"", 12.0),
        ("vllm:request_params_max_tokens_bucket", "le=\"5.0\"", 0.0),
        ("vllm:request_params_max_tokens_bucket", "le=\"10.0\"", 1.0),
        ("vllm:request_time_per_output_token_seconds_count", "", 5.0),
        ("http_request_size_bytes_count", "handler=\"/v1/completions\"", 4.0),
        ("http_request_duration_highr_seconds_count", "", 7.0),
    ] {
        assert_eq!(sample_with(&text, name, labels), Some(value), "{name}: {text}");
    }
}

#[tokio::test]
async fn a_request_whose_client_goes_before_its_answer_is_counted() {
    let metrics = Metrics::install("tiny", 4096).unwrap();
    let app = TestApp::new().gate(&Gate::shut());
    let (router, body) = (app.router(), json!({ "prompt": "hello", "max_tokens": 2 }).to_string());
    let asking = tokio::spawn(router.oneshot(posted("/v1/completions", body)));
    app.until_load(1, 0).await;
    asking.abort();
    assert!(asking.await.is_err());
    app.get("/health").await;
    let text = metrics.render(EngineLoad::default(), "default", None);
    let labels = "handler=\"/v1/completions\",method=\"POST\",status=\"4xx\"";
    assert_eq!(sample_with(&text, "http_requests_total", labels), Some(1.0), "{text}");
    assert_eq!(sample_with(&text, "http_request_duration_highr_seconds_count", ""), Some(1.0), "{text}");
    assert!(!text.contains("/health"), "{text}");
}

#[tokio::test]
async fn requests_that_find_the_queue_full_are_counted_as_rejected() {
    let metrics = Metrics::install("tiny", 4096).unwrap();
    let app = TestApp::new().gate(&Gate::shut()).seats(1).max_waiting(0);
    let running = app.open("/v1/completions", json!({ "prompt": "hello", "stream": true })).await;
    assert_eq!(app.post("/v1/completions", json!({ "prompt": "hello" })).await.status, 503);
    drop(running);
    let text = metrics.render(EngineLoad::default(), "default", None);
    let rejected = "vllm:admission_rejections_total{model_name=\"tiny\",reason=\"max_num_queued_reqs\"} 1.0\n";
    assert!(text.contains(rejected), "{text}");
    assert_eq!(sample_with(&text, "vllm:request_success_total", "abort"), Some(1.0), "{text}");
}

fn sample_with(text: &str, name: &str, labels: &str) -> Option<f64> {
    let starts = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    let line = text.lines().filter(starts).find(|line| line.contains(labels))?;
    line.rsplit_once(' ')?.1.parse().ok()
}
