//! What labels of metrics may say: a client that could make a new value with each request would fill the memory with
//! series, and every page of metrics after that.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
};
use serde_json::{Value, json};
use tito::{
    adapters::{AdapterPolicy, Adapters},
    admin::{self, Admin, Served},
    control::{Control, ControlPolicy},
    engine::{Engine, EngineLoad},
    server::{self, AllowedHosts, ApiKeys, ServerConfig},
    telemetry::Metrics,
};
use tower::ServiceExt;

use crate::it::{app::TestApp, layering::sources, rooms::CODE};

/// What bounds the values of a label.
#[derive(Debug, Clone, Copy)]
enum Bound {
    /// They are these.
    OneOf(&'static [&'static str]),
    /// They are names in the source.
    Names,
    /// They are numbers that flags or the source give.
    Numbers,
    /// They are routes of the server, with placeholders.
    Routes,
    /// They are any, and of the family there is one series at a time.
    OneSeries,
}

use Bound::{Names, Numbers, OneOf, OneSeries, Routes};

const METHODS: Bound =
    OneOf(&["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "other"]);
const STATUSES: Bound = OneOf(&["1xx", "2xx", "3xx", "4xx", "5xx"]);

/// Every label but `engine`, `model_name` and `le`, which the process puts on series itself.
const LABELS: [(&str, &str, Bound); 43] = [
    ("http_requests_total", "handler", Routes),
    ("http_requests_total", "method", METHODS),
    ("http_requests_total", "status", STATUSES),
    ("http_request_size_bytes", "handler", Routes),
    ("http_response_size_bytes", "handler", Routes),
    ("http_request_duration_seconds", "handler", Routes),
    ("http_request_duration_seconds", "method", METHODS),
    ("tito:continuity_cache_evictions_total", "cause", OneOf(&["expired", "size"])),
    ("tito:continuity_cache_lookups_total", "outcome", Names),
    ("tito:continuity_store_lookups_total", "outcome", Names),
    ("tito:continuity_store_seconds", "operation", OneOf(&["lookup", "write"])),
    ("tito:continuity_store_writes_total", "outcome", Names),
    ("tito:prefix_repair_total", "outcome", Names),
    ("tito:prefix_repair_total", "reason", Names),
    ("tito:prefix_repair_total", "source", Names),
    ("tito:prompt_ids_total", "kind", OneOf(&["reused", "new"])),
    ("tito:stalled_total", "what", OneOf(&["connection", "stream", "answer", "head", "body"])),
    ("tito:trace_spans_dropped_total", "reason", OneOf(&["queue_full", "refused", "unreachable"])),
    ("tito:trajectories_removed_total", "reason", OneOf(&["deleted", "size", "ttl"])),
    ("tito:weight_version_info", "version", OneSeries),
    ("vllm:admission_rejections_total", "reason", Names),
    ("vllm:cache_config_info", "block_size", Numbers),
    ("vllm:cache_config_info", "cache_dtype", OneOf(&["auto"])),
    ("vllm:cache_config_info", "enable_prefix_caching", OneOf(&["True"])),
    ("vllm:cache_config_info", "kv_cache_max_concurrency", Numbers),
    ("vllm:cache_config_info", "kv_cache_size_tokens", Numbers),
    ("vllm:cache_config_info", "num_gpu_blocks", Numbers),
    ("vllm:engine_sleep_state", "sleep_state", OneOf(&["awake", "weights_offloaded", "discard_all"])),
    ("vllm:lora_requests_info", "max_lora", OneSeries),
    ("vllm:lora_requests_info", "running_lora_adapters", OneSeries),
    ("vllm:lora_requests_info", "waiting_lora_adapters", OneSeries),
    ("vllm:num_requests_waiting_by_reason", "reason", Names),
    ("vllm:prompt_tokens_by_source_total", "source", Names),
    ("vllm:prompt_tokens_cached_by_source_total", "source", Names),
    ("vllm:request_success_total", "finished_reason", OneOf(&["stop", "length", "abort", "error", "repetition"])),
    ("vllm:rl_weight_update_operation_duration_seconds", "operation", Names),
    ("vllm:rl_weight_update_operations_in_flight", "operation", Names),
    ("vllm:sleep_mode_operation_duration_seconds", "operation", Names),
    ("vllm:sleep_mode_operations_in_flight", "operation", Names),
    ("vllm:spec_decode_num_accepted_tokens_per_pos_total", "position", Numbers),
    ("vllm:tool_call_parser_invocations_total", "mode", Names),
    ("vllm:tool_call_parser_invocations_total", "outcome", OneOf(&["tool_call", "no_tool_call"])),
    ("vllm:tool_call_parser_invocations_total", "request_type", Names),
];

/// The bound of a label of a series; `None` where the table has none.
fn bound(series: &str, label: &str) -> Option<Bound> {
    let is_of = |family: &str| {
        let base = family.strip_suffix("_total").unwrap_or(family);
        let of_base = series.strip_prefix(base).is_some_and(|rest| {
            ["", "_total", "_created", "_bucket", "_count", "_sum"].contains(&rest)
                || rest.strip_prefix("_total").is_some_and(|rest| ["_bucket", "_count", "_sum"].contains(&rest))
        });
        series == family || of_base
    };
    LABELS.iter().find(|(family, name, _)| *name == label && is_of(family)).map(|(_, _, bound)| *bound)
}

/// A series: its name, and its labels.
type Series = (String, Vec<(String, String)>);

/// The series of a page. No value has a quote in it.
fn series(page: &str) -> BTreeSet<Series> {
    let line = |line: &str| {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let Some((name, labels)) = series.split_once('{') else { return (series.to_owned(), Vec::new()) };
        let label = |label: &str| {
            let (name, value) = label.split_once("=\"").unwrap();
            (name.trim_start_matches(',').to_owned(), value.to_owned())
        };
        let labels = labels.trim_end_matches('}').split_terminator('"').collect::<Vec<_>>();
        let labels = labels.chunks(2).map(|pair| label(&pair.join("\""))).collect();
        (name.to_owned(), labels)
    };
    page.lines().filter(|line| !line.starts_with('#')).map(line).collect()
}

fn complaint(name: &str, label: &str, value: &str, routes: &BTreeSet<String>) -> Option<String> {
    if ["engine", "model_name", "le"].contains(&label) {
        return None;
    }
    let Some(bound) = bound(name, label) else { return Some(format!("{name}: `{label}` is not in the table")) };
    let fits = match bound {
        OneOf(values) => values.contains(&value),
        Names => {
            value.len() < 40
                && value.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        }
        Numbers => value.parse::<f64>().is_ok_and(f64::is_finite),
        Routes => value == "none" || routes.contains(value),
        OneSeries => true,
    };
    (!fits).then(|| format!("{name}: `{label}` is {value:?}, not {bound:?}"))
}

/// The control plane of an app.
pub(crate) fn admin_of(app: &TestApp) -> Arc<Admin> {
    let engine = app.engine() as Arc<dyn Engine>;
    let control = Control::new(Arc::clone(&engine), app.running().clone(), ControlPolicy::default());
    let adapters = Arc::new(Adapters::new(engine, AdapterPolicy::default()));
    let served = Served { model: "tiny".to_owned(), name: "tiny".to_owned(), weights: None, kv_block_size: None };
    Arc::new(Admin { control, served, adapters })
}

/// The same, on a port of its own.
fn admin_port(app: &TestApp) -> Router {
    server::admin_app(&admin_of(app), ApiKeys::default(), AllowedHosts::default(), &ServerConfig::default())
}

/// Bodies in which everything that is a text is `text`, or is next to one.
fn bodies(text: &str) -> Vec<Value> {
    let messages = json!([{ "role": "user", "content": text, "name": text }]);
    let history = json!([
        { "role": "user", "content": text }, { "role": "assistant", "content": text, "finish_reason": text },
        { "role": "user", "content": text },
    ]);
    let tools = json!([{ "type": "function", "function": { "name": text, "description": text } }]);
    vec![
        json!({ "prompt": text, "max_tokens": 2, "user": text, "cache_salt": text, "request_id": text }),
        json!({ "prompt": text, "max_tokens": 2, "stop": text, "priority": 1, "session_id": text, text: text }),
        json!({ "prompt": "hello", "model": text }),
        json!({ "messages": messages, "max_tokens": 2, "metadata": { text: text } }),
        json!({ "messages": history, "max_tokens": 2, "prompt_cache_key": text }),
        json!({ "messages": messages, "max_tokens": 2, "tools": tools, "tool_choice": "auto" }),
        json!({ "messages": [{ "role": text, "content": "a" }], "required_prefix_token_ids": [3, 4] }),
        json!({ "input": text, "max_output_tokens": 2, "previous_response_id": text }),
        json!({ "input": text, "max_output_tokens": 2, "conversation": text }),
        json!({ "token_ids": [5, 6], "sampling_params": { "max_tokens": 2 }, "request_id": text }),
        json!({ "new_version": text, "weight_version": text, "method": text, "tags": [text], "mode": text }),
        json!({ "model_path": text, "weight_dir": text, "lora_name": text, "lora_path": text, "level": text }),
    ]
}

/// Asks every path of a server in ways that nobody has asked before, as far as `text` is new.
async fn ask(routers: &[Router], paths: &BTreeSet<String>, text: &str) {
    let requests = |path: &str| {
        let filled = path.split('/').map(|part| if part.starts_with('{') { text } else { part });
        let filled = filled.collect::<Vec<_>>().join("/");
        let mut requests: Vec<_> = ["GET", "DELETE", "OPTIONS", "QUERY", text, &format!("{text}A").repeat(999)]
            .map(|method| (method.to_owned(), filled.clone(), String::new()))
            .into();
        requests.push(("POST".to_owned(), format!("{filled}?mode={text}&level={text}&tags={text}"), String::new()));
        requests.extend(bodies(text).iter().map(|body| ("POST".to_owned(), filled.clone(), body.to_string())));
        requests
    };
    let unknown =
        [format!("/{text}"), format!("/v1/{text}/{text}"), format!("/inspect/{text}"), format!("/docs/{text}")];
    for (method, path, body) in paths.iter().chain(&unknown).flat_map(|path| requests(path)) {
        for router in routers {
            let mut request = Request::builder().method(method.as_str()).uri(&path);
            for name in ["x-request-id", "x-session-id", "user-agent", "traceparent", "content-encoding"] {
                request = request.header(name, text);
            }
            request = request.header("content-type", if body.is_empty() { text } else { "application/json" });
            let response = router.clone().oneshot(request.body(Body::from(body.clone())).unwrap()).await.unwrap();
            if method.len() > 999 {
                assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{path}");
            }
            axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        }
    }
}

#[tokio::test]
async fn no_client_makes_new_values_of_labels() {
    let metrics = Metrics::install("tiny", 4096).unwrap();
    let app = TestApp::new().reads_tool_calls();
    let ports = [app.router(), admin_port(&app)];
    let mut paths: BTreeSet<String> = tito::api::openapi().paths.paths.keys().cloned().collect();
    paths.extend(admin::paths().into_iter().map(str::to_owned));
    let mut routes = paths.clone();
    routes
        .extend(["/docs", "/docs/", "/docs/{*rest}", "/redoc", "/openapi.json", "/inspect/{file}"].map(str::to_owned));
    let mut rounds = Vec::new();
    for text in ["EVILONE", "EVILTWO"] {
        ask(&ports, &paths, text).await;
        rounds.push(series(&metrics.render(EngineLoad::default(), "default", None)));
    }
    let complaints = rounds[0]
        .iter()
        .flat_map(|(name, labels)| labels.iter().filter_map(|(label, value)| complaint(name, label, value, &routes)));
    assert_eq!(complaints.collect::<BTreeSet<_>>(), BTreeSet::new());
    assert_eq!(rounds[1].difference(&rounds[0]).collect::<Vec<_>>(), Vec::<&Series>::new(), "asking again made series");
    let methods: BTreeSet<_> =
        rounds[0].iter().flat_map(|(_, labels)| labels).filter(|(label, _)| label == "method").collect();
    assert!(methods.iter().any(|(_, value)| value == "other"), "{methods:?}");
}

/// The labels of a call of `counter!`, `gauge!` or `histogram!`, by the metric's name.
fn labels_in(code: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for call in ["counter!(", "gauge!(", "histogram!("].into_iter().flat_map(|name| code.split(name).skip(1)) {
        let arguments = call.split(')').next().unwrap_or_default();
        let mut texts = arguments.split('"').skip(1).step_by(2);
        let after: Vec<_> = arguments.split('"').skip(2).step_by(2).map(str::trim_start).collect();
        let Some(metric) = texts.next() else { continue };
        let labels = texts.zip(after.iter().skip(1)).filter(|(_, after)| after.starts_with("=>"));
        found.entry(metric.to_owned()).or_default().extend(labels.map(|(label, _)| label.to_owned()));
    }
    found
}

#[test]
fn every_label_that_the_source_names_has_a_bound() {
    let sample = "counter!(\n\"a_total\",\n\"b\" => \"c\", \"d\" => e)";
    assert_eq!(labels_in(sample)["a_total"], BTreeSet::from(["b".to_owned(), "d".to_owned()]));
    let mut checked = 0;
    for source in sources(&CODE) {
        let code: String = source.code().flat_map(|(_, line)| [line, "\n"]).collect();
        for (metric, labels) in labels_in(&code) {
            for label in labels {
                assert!(bound(&metric, &label).is_some(), "{}: `{label}` of {metric} is not in LABELS", source.path);
                checked += 1;
            }
        }
    }
    assert!(checked > 15, "{checked}");
}
