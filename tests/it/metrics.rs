//! `/metrics`.

use serde_json::json;
use tito::{engine::scripted::Gate, telemetry::Metrics};

use crate::app::TestApp;

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
    assert!(busy.text.contains("vllm:num_requests_running{model_name=\"tiny\",engine=\"0\"} 1\n"), "{}", busy.text);
    drop((running, waiting));
    let idle = app.get("/metrics").await;
    assert_eq!(sample(&idle.text, "vllm:num_requests_waiting"), Some(0.0));
}

#[tokio::test]
async fn requests_and_prompts_are_counted_by_route_and_outcome() {
    // The only test that installs a recorder: there is one a process, and each test is its own.
    let metrics = Metrics::install("tiny").unwrap();
    let app = TestApp::new().says("hello").cached_tokens(3);
    app.get("/v1/nope/1").await;
    app.get("/v1/nope/2").await;
    app.post("/v1/completions", json!({ "prompt": [5, 6, 7, 8, 9], "max_tokens": 7 })).await.ok();
    app.post("/v1/completions", json!({ "prompt": "" })).await;
    app.post("/tokenize", json!({ "messages": [{ "role": "user", "content": "hello" }] })).await.ok();
    let text = metrics.render(tito::engine::EngineLoad::default());
    let count = |handler: &str, method: &str, status: &str| {
        let labels = format!("handler=\"{handler}\",method=\"{method}\",status=\"{status}\"");
        sample_with(&text, "http_requests_total", &labels)
    };
    assert_eq!(count("/v1/completions", "POST", "2xx"), Some(1.0), "{text}");
    assert_eq!(count("/v1/completions", "POST", "4xx"), Some(1.0), "{text}");
    // Clients cannot make new series.
    assert_eq!(count("none", "GET", "4xx"), Some(2.0), "{text}");
    assert!(!text.contains("nope"), "{text}");
    assert_eq!(sample_with(&text, "tito:prefix_repair_total", "outcome=\"fresh\""), Some(1.0), "{text}");
    for (name, labels, value) in [
        ("vllm:generation_tokens_total", "engine=\"0\"", 2.0),
        ("vllm:request_success_total", "finished_reason=\"stop\"", 1.0),
        ("vllm:time_to_first_token_seconds_count", "", 1.0),
        ("vllm:e2e_request_latency_seconds_count", "", 1.0),
        ("vllm:request_generation_tokens_sum", "", 2.0),
        ("vllm:prompt_tokens_total", "", 5.0),
        ("vllm:prompt_tokens_cached_total", "engine=\"0\"", 3.0),
        ("vllm:request_prefill_kv_computed_tokens_sum", "", 2.0),
        ("vllm:request_params_max_tokens_sum", "", 7.0),
        ("vllm:request_params_max_tokens_bucket", "le=\"5\"", 0.0),
        ("vllm:request_params_max_tokens_bucket", "le=\"10\"", 1.0),
        ("vllm:request_time_per_output_token_seconds_count", "", 1.0),
        ("vllm:request_time_per_output_token_seconds_bucket", "le=\"40\"", 1.0),
    ] {
        assert_eq!(sample_with(&text, name, labels), Some(value), "{name}: {text}");
    }
    assert!(text.contains("http_request_duration_seconds_bucket"), "{text}");
    let about = "# HELP vllm:prompt_tokens_cached_total Prompt tokens that were not computed again.\n\
                 # TYPE vllm:prompt_tokens_cached_total counter\n";
    assert!(text.contains(about), "{text}");
}

#[test]
fn every_gauge_of_the_load_is_explained_and_labelled() {
    let load = tito::engine::EngineLoad { running: 3, waiting: 2, kv_cache_usage: 0.25 };
    let text = Metrics::detached("tiny").unwrap().render(load);
    for (name, value) in [("num_requests_running", "3"), ("num_requests_waiting", "2"), ("kv_cache_usage_perc", "0.25")]
    {
        assert!(text.contains(&format!("# HELP vllm:{name} ")), "{text}");
        assert!(text.contains(&format!("# TYPE vllm:{name} gauge\n")), "{text}");
        assert!(text.contains(&format!("vllm:{name}{{model_name=\"tiny\",engine=\"0\"}} {value}\n")), "{text}");
    }
}

fn sample_with(text: &str, name: &str, labels: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(name) && line.contains(labels))?;
    line.rsplit_once(' ')?.1.parse().ok()
}
