//! What a client sees whose turn cannot be captured.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tito::store::{
    MemoryStore,
    watched::{WatchedStore, no_space},
};

use super::trajectories::{POLICY, capture, user};
use crate::it::app::TestApp;

#[tokio::test]
async fn an_answer_that_cannot_be_captured_is_an_error_and_not_an_answer() {
    let kept = Arc::new(MemoryStore::new(1, Duration::MAX));
    let full = Arc::new(WatchedStore { kept, before_write: |_| Err(no_space()) });
    let app = TestApp::new().captures(capture(full, POLICY));
    let body = json!({ "messages": [user("Hi")], "max_tokens": 2 });
    let answer = app.post("/v1/chat/completions", body.clone()).await;
    let message = "the answer could not be captured: the disk of the trajectory store is full: no space";
    assert_eq!((answer.status, &answer.error()["message"]), (500, &json!(message)));
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let events = app.post("/v1/chat/completions", streamed).await.events();
    assert_eq!(events.last().unwrap()["error"]["message"], message);
    assert!(events.iter().all(|event| event["choices"][0]["finish_reason"].is_null()));
}
