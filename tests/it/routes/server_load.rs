//! `GET /load` and `/kv_event_sources`.

use serde_json::json;
use tito::engine::scripted::Gate;

use crate::it::app::TestApp;

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
