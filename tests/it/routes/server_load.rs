//! `GET /load` and `/kv_event_sources`.

use axum::body::HttpBody;
use serde_json::json;
use tito::{engine::scripted::Gate, tinker_sessions::TinkerBounds};
use tower::ServiceExt;

use crate::it::{
    app::{TestApp, posted},
    patience::until,
};

async fn load(app: &TestApp) -> u64 {
    let answer = app.get("/load").await.ok();
    assert_eq!(answer.as_object().unwrap().len(), 1);
    answer["server_load"].as_u64().unwrap()
}

#[tokio::test]
async fn requests_count_until_their_answer_is_sent_or_dropped() {
    let gate = Gate::shut();
    let app = TestApp::new().tracks_load().gate(&gate);
    let body = json!({ "prompt": "hello", "max_tokens": 2, "ignore_eos": true, "stream": true });
    let first = app.open("/v1/completions", body.clone()).await;
    let second = app.open("/v1/completions", body).await;
    assert_eq!(load(&app).await, 2);
    drop(second);
    assert_eq!(load(&app).await, 1);
    gate.open();
    assert_eq!(first.rest().await.len(), 2);
    assert_eq!(load(&app).await, 0);
    let whole = app.post("/v1/completions", json!({ "prompt": "hello" })).await;
    assert_eq!(whole.headers["content-length"].to_str().unwrap(), whole.text.len().to_string());
    assert_eq!(app.post("/v1/completions", json!({ "prompt": 5 })).await.status, 400);
    assert_eq!(load(&app).await, 0);
}

#[tokio::test]
async fn the_length_of_a_counted_answer_is_known_to_what_is_around_it() {
    let app = TestApp::new().tracks_load();
    // The last one is long enough that its answer holds room for it.
    for body in
        [json!({ "prompt": "hello" }), json!({ "prompt": 5 }), json!({ "prompt": 5, "user": "a".repeat(2 << 20) })]
    {
        let answer = app.router().oneshot(posted("/v1/completions", body.to_string())).await.unwrap();
        let exact = answer.body().size_hint().exact();
        let length = answer.headers().get("content-length").map(|length| length.to_str().unwrap().to_owned());
        assert!(
            exact.is_some_and(|exact| exact > 0 && length.is_none_or(|length| length == exact.to_string())),
            "{exact:?}"
        );
    }
    let streamed = json!({ "prompt": "hello", "stream": true }).to_string();
    let streamed = app.router().oneshot(posted("/v1/completions", streamed)).await.unwrap();
    assert_eq!(streamed.body().size_hint().exact(), None);
}

#[tokio::test]
async fn what_speaks_sglang_counts_until_it_ends() {
    let gate = Gate::shut();
    let app = TestApp::new().tracks_load().gate(&gate);
    let body = json!({ "text": "hello", "sampling_params": { "max_new_tokens": 2 }, "stream": true });
    let running = app.open("/generate", body).await;
    assert_eq!(load(&app).await, 1);
    drop(running);
    assert_eq!(load(&app).await, 0);
}

#[tokio::test]
async fn what_is_generated_while_nobody_waits_counts_once_until_it_ends() {
    let gate = Gate::shut();
    let app = TestApp::new().says("hello").tracks_load().gate(&gate).tinker(TinkerBounds::default());
    let response = app.post("/v1/responses", json!({ "input": "hello", "background": true })).await.ok();
    assert_eq!(load(&app).await, 1);
    let cancelled = app.post(&format!("/v1/responses/{}/cancel", response["id"].as_str().unwrap()), json!({})).await;
    assert_eq!(cancelled.status, 200);
    until("nothing is served", async || load(&app).await == 0).await;
    let streamed = app.open("/v1/responses", json!({ "input": "hello", "background": true, "stream": true })).await;
    assert_eq!(load(&app).await, 1);
    drop(streamed);
    assert_eq!(load(&app).await, 1);
    let session = app.post("/api/v1/create_session", json!({ "tags": [], "sdk_version": "0.38.0" })).await.ok();
    let body = json!({ "session_id": session["session_id"], "sampling_session_seq_id": 0, "base_model": "tiny" });
    let sampler = app.post("/api/v1/create_sampling_session", body).await.ok();
    let body = json!({
        "sampling_session_id": sampler["sampling_session_id"], "seq_id": 0, "num_samples": 1,
        "prompt": { "chunks": [{ "type": "encoded_text", "tokens": [5, 6] }] }, "sampling_params": { "max_tokens": 2 }
    });
    app.post("/api/v1/asample", body).await.ok();
    assert_eq!(load(&app).await, 2);
    gate.open();
    until("nothing is served", async || load(&app).await == 0).await;
}

#[tokio::test]
async fn nothing_is_counted_unless_the_server_was_told_to() {
    let app = TestApp::new().gate(&Gate::shut());
    let body = json!({ "prompt": "hello", "max_tokens": 2, "stream": true });
    let running = app.open("/v1/completions", body).await;
    assert_eq!(load(&app).await, 0);
    drop(running);
}

#[tokio::test]
async fn nobody_publishes_events_of_the_cache() {
    assert_eq!(TestApp::new().get("/kv_event_sources").await.ok(), json!({}));
}
