//! Spans of requests, from their heads to the last bytes of their answers.

use std::time::Duration;

use serde_json::{Value, json};
use tito::{
    engine::{RequestTimes, scripted::Gate},
    otlp::{Probe, SeenSpan},
    tinker_sessions::TinkerBounds,
};

use crate::it::app::{IM_END, MODEL, TestApp, posted};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// A server whose requests are traced, and its spans.
fn traced(app: TestApp) -> (TestApp, Probe) {
    let (tracer, probe) = Probe::new();
    (app.server(|server| server.tracer = Some(tracer)), probe)
}

/// 8 ms in the queue, 50 ms for the prompt, and 25 ms for each token after the first one.
fn times() -> Vec<RequestTimes> {
    let times = |decode| {
        let [queued, prefill, decode] = [8, 50, decode].map(Duration::from_millis);
        RequestTimes { queued, prefill, decode }
    };
    (0..9).map(|token| times(25 * token)).collect()
}

fn chat(more: Value) -> Value {
    let mut body = json!({ "model": MODEL, "messages": [{ "role": "user", "content": "hello" }], "max_tokens": 3 });
    let Value::Object(more) = more else { panic!("no fields: {more}") };
    body.as_object_mut().unwrap().extend(more);
    body
}

fn names(spans: &[SeenSpan]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

fn only<'a>(spans: &'a [SeenSpan], name: &str) -> &'a SeenSpan {
    let mut found = spans.iter().filter(|span| span.name == name);
    let span = found.next().unwrap_or_else(|| panic!("no {name}: {spans:?}"));
    assert!(found.next().is_none(), "{name} is there twice: {spans:?}");
    span
}

#[tokio::test]
async fn an_answer_is_a_span_with_vllms_attributes_and_a_child_for_each_phase() {
    let (app, probe) = traced(TestApp::new().script([40, 41, 42, 43]).request_metrics(times()));
    let answer = app.post(CHAT, chat(json!({ "temperature": 0.5, "top_p": 0.9 }))).await.ok();
    let spans = probe.request().await;
    assert_eq!(names(&spans), ["llm_request", "prompt", "queue", "prefill", "decode"]);
    let request = &spans[0];
    assert!(request.is_server && !request.is_error && request.parent_id.is_empty());
    let prompt_tokens = answer["usage"]["prompt_tokens"].clone();
    let mut attributes = request.attributes.clone();
    assert!(attributes.remove("gen_ai.latency.e2e").unwrap().as_f64().unwrap() >= 0.0);
    let expected = json!({
        "gen_ai.latency.time_in_model_decode": 0.05,
        "gen_ai.latency.time_in_model_inference": 0.1,
        "gen_ai.latency.time_in_model_prefill": 0.05,
        "gen_ai.latency.time_in_queue": 0.008,
        "gen_ai.latency.time_to_first_token": 0.058,
        "gen_ai.request.id": answer["id"],
        "gen_ai.request.max_tokens": 3,
        "gen_ai.request.n": 1,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.response.model": "the-model",
        "gen_ai.usage.completion_tokens": 3,
        "gen_ai.usage.num_sequences": 1,
        "gen_ai.usage.prompt_tokens": prompt_tokens,
        "http.response.status_code": 200,
        "http.route": CHAT,
        "tito.cached_tokens": 0,
        "tito.finish_reason": "length",
    });
    assert_eq!(serde_json::to_value(&attributes).unwrap(), expected);
    let verdict = json!({
        "tito.continuity.new_tokens": prompt_tokens,
        "tito.continuity.reused_tokens": 0,
        "tito.continuity.source": "none",
        "tito.continuity.verdict": "fresh",
    });
    assert_eq!(serde_json::to_value(&spans[1].attributes).unwrap(), verdict);
    let mut from = spans[2].started;
    for (span, took) in spans[2..].iter().zip([8, 50, 50]) {
        assert_eq!((span.started, span.ended - span.started), (from, took * MS), "{}", span.name);
        from = span.ended;
    }
    for child in &spans[1..] {
        assert_eq!((&child.parent_id, &child.trace_id), (&request.span_id, &request.trace_id));
        assert!(!child.is_server && child.started >= request.started);
    }
    assert!(spans[1].ended <= spans[2].started && spans[1].ended <= request.ended);
}

#[tokio::test]
async fn times_are_in_spans_and_not_in_answers() {
    let (tracer, probe) = Probe::new();
    let app = TestApp::new().script([40, 41, 42, 43]).request_metrics(times());
    let app = app.server(|server| server.tracer = Some(tracer));
    let several = app.post(CHAT, chat(json!({ "n": 2 }))).await.ok();
    assert_eq!(several["metrics"], Value::Null);
    assert_eq!(probe.request().await.len(), 2 + 2 * 4);
}

#[tokio::test]
async fn several_answers_are_one_request_with_a_span_each() {
    let (app, probe) = traced(TestApp::new().script([40, 41, 42, 43]).request_metrics(times()));
    let prompts = json!({ "prompt": ["hello", "you"], "n": 2, "max_tokens": 2 });
    let answer = app.post(COMPLETIONS, prompts).await.ok();
    let spans = probe.request().await;
    let request = only(&spans, "llm_request");
    for (name, value) in [
        ("gen_ai.usage.num_sequences", json!(4)),
        ("gen_ai.request.n", json!(2)),
        ("gen_ai.usage.completion_tokens", json!(8)),
        ("gen_ai.usage.prompt_tokens", answer["usage"]["prompt_tokens"].clone()),
        ("gen_ai.request.id", answer["id"].clone()),
    ] {
        assert_eq!(request.attributes[name], value, "{name}");
    }
    // Nobody could say whose it is.
    assert!(!request.attributes.contains_key("gen_ai.latency.time_in_queue"));
    let sequences: Vec<_> = spans.iter().filter(|span| span.name == "sequence").collect();
    assert_eq!((sequences.len(), spans.iter().filter(|span| span.name == "prompt").count()), (4, 2));
    for sequence in sequences {
        assert_eq!(sequence.parent_id, request.span_id);
        assert_eq!(sequence.attributes["gen_ai.usage.completion_tokens"], 2);
        assert_eq!(sequence.attributes["gen_ai.latency.time_in_queue"], 0.008);
        let phases = spans.iter().filter(|span| span.parent_id == sequence.span_id);
        assert_eq!(phases.map(|span| span.name.as_str()).collect::<Vec<_>>(), ["queue", "prefill", "decode"]);
    }
    assert!(probe.is_empty());
}

#[tokio::test]
async fn a_stream_ends_its_span_once_it_is_read_to_its_end() {
    let gate = Gate::shut();
    let (app, probe) = traced(TestApp::new().script([40, 41, 42, 43]).gate(&gate));
    for path in [CHAT, COMPLETIONS] {
        let mut body = chat(json!({ "stream": true }));
        if path == COMPLETIONS {
            body = json!({ "prompt": "hello", "max_tokens": 3, "stream": true });
        }
        let mut stream = app.open(path, body).await;
        gate.pass(1);
        stream.next().await.unwrap();
        assert!(probe.is_empty(), "{path}");
        gate.pass(100);
        while stream.next().await.is_some() {}
        drop(stream);
        let spans = probe.request().await;
        assert_eq!(spans[0].attributes["gen_ai.usage.completion_tokens"], 3, "{path}");
        assert!(probe.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn a_client_that_goes_ends_its_span() {
    let gate = Gate::shut();
    let (app, probe) = traced(TestApp::new().gate(&gate).seats(1));
    let mut stream = app.open(CHAT, chat(json!({ "stream": true, "max_tokens": 50 }))).await;
    gate.pass(2);
    stream.next().await.unwrap();
    stream.next().await.unwrap();
    drop(stream);
    let spans = probe.request().await;
    assert_eq!(spans[0].attributes["tito.finish_reason"], "abort");
    assert!(!spans[0].is_error);
    // One that goes before it has an answer gets no status.
    let (router, body) = (app.router(), chat(json!({})).to_string());
    let asking = tokio::spawn(async move {
        let mut router = router;
        tower::Service::call(&mut router, posted(CHAT, body)).await
    });
    app.until_load(1, 0).await;
    asking.abort();
    let spans = probe.request().await;
    assert_eq!(spans[0].attributes["tito.finish_reason"], "abort");
    assert!(!spans[0].attributes.contains_key("http.response.status_code"), "{spans:?}");
    assert!(probe.is_empty());
}

#[tokio::test]
async fn errors_have_a_status_and_their_type() {
    let (app, probe) = traced(TestApp::new().max_model_len(64).gate(&Gate::shut()).seats(1).max_waiting(0));
    let long = "hello ".repeat(400);
    let too_long = app.post(CHAT, chat(json!({ "messages": [{ "role": "user", "content": long }] }))).await;
    assert_eq!(too_long.status, 400);
    let spans = probe.request().await;
    assert_eq!(names(&spans), ["llm_request", "prompt"]);
    assert!(spans.iter().all(|span| span.is_error));
    let expected = json!({ "http.route": CHAT, "http.response.status_code": 400, "error.type": "BadRequestError" });
    assert_eq!(serde_json::to_value(&spans[0].attributes).unwrap(), expected);
    let _running = app.open(COMPLETIONS, json!({ "prompt": "hello", "stream": true })).await;
    let busy = app.post(COMPLETIONS, json!({ "prompt": "hello" })).await;
    assert_eq!(busy.status, 503);
    let spans = probe.request().await;
    assert!(spans[0].is_error);
    assert_eq!(spans[0].attributes["error.type"], "Service Unavailable");
    assert_eq!(spans[0].attributes["http.response.status_code"], 503);
}

#[tokio::test]
async fn what_is_refused_before_it_is_read_has_a_span_too() {
    let (app, probe) = traced(TestApp::new().tinker(TinkerBounds::default()));
    for (path, body) in [
        (CHAT, json!({ "messages": 7 })),
        (CHAT, json!({})),
        (CHAT, chat(json!({ "model": "another" }))),
        ("/v1/chat/completions/batch", json!({})),
        ("/v1/chat/completions/tokens", json!({})),
        (COMPLETIONS, json!({ "prompt": 5 })),
        ("/v1/responses", json!({})),
        ("/v1/messages", json!({ "messages": 7 })),
        ("/inference/v1/generate", json!({})),
        ("/generate", json!({})),
        ("/invocations", json!([])),
        ("/api/v1/asample", json!({})),
    ] {
        let status = app.post(path, body).await.status;
        assert!((400..500).contains(&status), "{path}: {status}");
        let spans = probe.request().await;
        assert_eq!(names(&spans), ["llm_request"], "{path}");
        let attributes = &spans[0].attributes;
        assert_eq!(
            (&attributes["http.route"], &attributes["http.response.status_code"]),
            (&json!(path), &json!(status))
        );
        assert!(spans[0].is_error && probe.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn what_generates_nothing_has_no_span() {
    let (app, probe) = traced(TestApp::new());
    app.post("/tokenize", json!({ "prompt": "hello" })).await.ok();
    app.post("/v1/chat/completions/render", chat(json!({}))).await.ok();
    app.get("/v1/models").await.ok();
    assert_eq!(app.post("/nowhere", json!({})).await.status, 404);
    assert!(probe.is_empty());
    app.post(COMPLETIONS, json!({ "prompt": [40, 41], "max_tokens": 1 })).await.ok();
    assert_eq!(names(&probe.request().await)[0], "llm_request");
}

#[tokio::test]
async fn every_dialect_is_traced_under_its_own_id() {
    let (app, probe) = traced(TestApp::new().tinker(TinkerBounds::default()));
    let messages = json!([{ "role": "user", "content": "hello" }]);
    for (path, body) in [
        (CHAT, chat(json!({}))),
        (COMPLETIONS, json!({ "prompt": "hello", "max_tokens": 2 })),
        ("/v1/responses", json!({ "input": "hello", "max_output_tokens": 2 })),
        ("/v1/messages", json!({ "model": MODEL, "messages": messages, "max_tokens": 2 })),
        ("/inference/v1/generate", json!({ "token_ids": [40, 41], "sampling_params": { "max_tokens": 2 } })),
        ("/generate", json!({ "input_ids": [40, 41], "sampling_params": { "max_new_tokens": 2 } })),
    ] {
        let answer = app.post(path, body).await.ok();
        let spans = probe.request().await;
        let request = only(&spans, "llm_request");
        assert_eq!((&request.attributes["http.route"], request.is_error), (&json!(path), false));
        let id =
            [&answer["id"], &answer["request_id"], &answer["meta_info"]["id"]].into_iter().find(|id| !id.is_null());
        assert_eq!(Some(&request.attributes["gen_ai.request.id"]), id, "{path}");
        assert!(probe.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn a_response_in_the_background_ends_its_span_when_it_has_ended() {
    let gate = Gate::shut();
    let (app, probe) = traced(TestApp::new().script([40, 41, 42, IM_END]).gate(&gate));
    app.post("/v1/responses", json!({ "input": "hello", "background": true })).await.ok();
    app.until_load(1, 0).await;
    assert!(probe.is_empty());
    gate.open();
    let spans = probe.request().await;
    assert_eq!(spans[0].attributes["tito.finish_reason"], "stop");
}

#[tokio::test]
async fn a_request_belongs_to_the_trace_that_its_headers_name() {
    let (app, probe) = traced(TestApp::new());
    let asks = async |headers: &[(&str, &str)]| {
        let mut request = posted(CHAT, chat(json!({})).to_string());
        for (name, value) in headers {
            request.headers_mut().append(name.parse::<axum::http::HeaderName>().unwrap(), value.parse().unwrap());
        }
        let answer = app.request(request).await;
        assert_eq!(answer.status, 200);
        // As in vLLM, answers name no trace.
        assert!(!answer.headers.contains_key("traceparent"));
    };
    asks(&[("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")]).await;
    let spans = probe.request().await;
    assert_eq!(spans[0].parent_id, "00f067aa0ba902b7");
    for span in &spans {
        assert_eq!((span.trace_id.as_str(), span.state.as_str()), ("4bf92f3577b34da6a3ce929d0e0e4736", "a=1,b=2"));
    }
    // A trace that is not recorded is not recorded here.
    asks(&[("traceparent", &PARENT.replace("-01", "-00"))]).await;
    assert!(probe.is_empty());
    let long = "x".repeat(100_000);
    for garbage in ["garbage", &long, "", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"] {
        asks(&[("traceparent", garbage), ("tracestate", "a=1")]).await;
        let spans = probe.request().await;
        assert_eq!((spans[0].parent_id.as_str(), spans[0].state.as_str()), ("", ""), "{garbage:.40}");
        assert_eq!(spans[0].trace_id.len(), 32);
    }
}

#[tokio::test]
async fn the_verdict_on_known_ids_is_told_and_no_text_is() {
    let (app, probe) = traced(TestApp::new().says("secret words"));
    let first = app.post(CHAT, chat(json!({ "max_tokens": 90 }))).await.ok();
    probe.request().await;
    let messages = json!([
        { "role": "user", "content": "hello" },
        first["choices"][0]["message"],
        { "role": "user", "content": "a private question" },
    ]);
    let second = app.post(CHAT, chat(json!({ "messages": messages }))).await.ok();
    let spans = probe.request().await;
    let prompt = only(&spans, "prompt");
    assert_eq!(prompt.attributes["tito.continuity.verdict"], "exact");
    assert_eq!(prompt.attributes["tito.continuity.source"], "cache");
    let [reused, new] =
        ["reused", "new"].map(|what| prompt.attributes[&format!("tito.continuity.{what}_tokens")].as_u64().unwrap());
    assert!(reused > 0);
    assert_eq!(json!(reused + new), second["usage"]["prompt_tokens"]);
    let told = format!("{spans:?}");
    for word in ["secret", "private", "hello"] {
        assert!(!told.contains(word), "{told}");
    }
}
