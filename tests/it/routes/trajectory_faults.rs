//! What a client sees whose turn cannot be captured.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use futures::FutureExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tito::{
    engine::scripted::Gate,
    store::{
        BatchStore, MemoryStore,
        watched::{WatchedStore, no_space},
    },
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

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_turn_whose_client_has_left_is_waited_for() {
    let kept = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX));
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let before_write = move |_| released.lock().recv().map_err(|_| no_space());
    let gate = Gate::shut();
    let store = Arc::new(WatchedStore { kept: Arc::clone(&kept), before_write });
    let app = TestApp::new().gate(&gate).captures(capture(store, POLICY));
    let mut stream = app.open("/v1/chat/completions", json!({ "messages": [user("Hi")], "stream": true })).await;
    gate.pass(2);
    for _ in 0..3 {
        stream.next().await.unwrap();
    }
    assert!(app.captures_settled().now_or_never().is_some());
    drop(stream);
    let mut settled = Box::pin(app.captures_settled());
    assert!(settled.as_mut().now_or_never().is_none());
    release.send(()).unwrap();
    settled.await;
    assert_eq!(kept.ids().unwrap().len(), 1);
}

#[tokio::test]
async fn answers_beside_one_that_cannot_be_captured_end_by_an_error() {
    let kept = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX));
    let has_failed = AtomicBool::new(false);
    let before_write = move |_| if has_failed.swap(true, Ordering::Relaxed) { Ok(()) } else { Err(no_space()) };
    let app = TestApp::new().captures(capture(Arc::new(WatchedStore { kept, before_write }), POLICY));
    let body = json!({ "messages": [user("Hi")], "max_tokens": 3, "n": 2, "temperature": 1.0, "ignore_eos": true });
    assert_eq!(app.post("/v1/chat/completions", body).await.status, 500);
    app.captures_settled().await;
    let line: Value = serde_json::from_str(&app.get("/v1/trajectories/export").await.text).unwrap();
    assert_eq!(line["turns"][0]["finish_reason"], "error");
}
