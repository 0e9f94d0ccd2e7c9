//! What a client sees whose turn cannot be captured.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tito::store::{BatchStore, MemoryStore, StoreError};

use super::trajectories::{POLICY, capture, user};
use crate::it::app::TestApp;

/// A disk on which nothing can be written.
struct Full(MemoryStore);

impl BatchStore for Full {
    fn write(&self, _: &[String], _: &[(&str, &[u8])]) -> Result<(), StoreError> {
        Err(StoreError::DiskFull("no space".into()))
    }

    fn read(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.read(id)
    }

    fn ids(&self) -> Result<Vec<String>, StoreError> {
        self.0.ids()
    }

    fn kept_bytes(&self) -> Result<u64, StoreError> {
        self.0.kept_bytes()
    }

    fn bytes_alone(&self, ids: &[String], new: (&str, &[u8])) -> Result<u64, StoreError> {
        self.0.bytes_alone(ids, new)
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_captured_is_an_error_and_not_an_answer() {
    let full = Arc::new(Full(MemoryStore::new(1, Duration::MAX)));
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
