//! What belongs to an API key: stored responses, and requests that can be ended by their ids.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{Method, Request, header},
};
use serde_json::{Value, json};
use tito::{
    engine::{Engine, EngineLoad, scripted::Gate},
    store::{MemoryStore, ResponseStore},
};
use tower::Service;

use super::responses::PATH;
use crate::it::app::{Answer, TestApp};

const ABORT: &str = "/inference/v1/abort_requests";

fn request(key: Option<&str>, method: &Method, path: &str, body: Option<&Value>) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    if let Some(key) = key {
        request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
    }
    request.body(body.map_or_else(Body::empty, |body| Body::from(body.to_string()))).unwrap()
}

async fn post(app: &TestApp, key: Option<&str>, path: &str, body: &Value) -> Answer {
    app.request(request(key, &Method::POST, path, Some(body))).await
}

/// Everything that can be asked of a stored response: the status and the body of each, with the id made constant.
async fn everything(app: &TestApp, key: Option<&str>, id: &str) -> Vec<(String, u16, String)> {
    let path = format!("{PATH}/{id}");
    let next = json!({ "input": "And?", "previous_response_id": id, "store": false });
    let asked = [
        (Method::GET, path.clone(), None),
        (Method::GET, format!("{path}?stream=true"), None),
        (Method::GET, format!("{path}/input_items"), None),
        (Method::POST, format!("{path}/cancel"), None),
        (Method::POST, PATH.to_owned(), Some(&next)),
        (Method::DELETE, path, None),
    ];
    let mut told = Vec::new();
    for (method, path, body) in asked {
        let answer = app.request(request(key, &method, &path, body)).await;
        told.push((format!("{method} {path}").replace(id, "ID"), answer.status, answer.text.replace(id, "ID")));
    }
    told
}

fn keyed() -> TestApp {
    TestApp::new().says("Hello there").keys(&["one", "two"])
}

fn shared() -> TestApp {
    keyed().server(|server| server.api_keys = std::mem::take(&mut server.api_keys).shared(true))
}

#[tokio::test]
async fn a_response_of_another_key_is_like_one_that_never_was() {
    for (stream, background) in [(false, false), (true, false), (false, true), (true, true)] {
        let app = keyed();
        let body = json!({ "input": "Hi", "stream": stream, "background": background, "request_id": "resp_of_one" });
        assert_eq!(post(&app, Some("one"), PATH, &body).await.status, 200);
        let unknown = everything(&app, Some("two"), "resp_of_nobody").await;
        assert!(unknown.iter().all(|(_, status, _)| *status == 404), "{unknown:?}");
        assert_eq!(everything(&app, Some("two"), "resp_of_one").await, unknown);
        let own: Vec<u16> = everything(&app, Some("one"), "resp_of_one").await.iter().map(|told| told.1).collect();
        assert!(!own.contains(&404), "{own:?}");
        // It is deleted now, by its owner.
        assert_eq!(everything(&app, Some("one"), "resp_of_one").await, unknown);
    }
}

#[tokio::test]
async fn a_response_that_another_key_is_generating_is_neither_seen_nor_ended() {
    let gate = Gate::shut();
    let app = keyed().gate(&gate);
    let body = json!({ "input": "Hi", "background": true, "stream": false, "request_id": "resp_of_one" });
    assert_eq!(post(&app, Some("one"), PATH, &body).await.ok()["status"], "queued");
    let unknown = everything(&app, Some("two"), "resp_of_nobody").await;
    assert_eq!(everything(&app, Some("two"), "resp_of_one").await, unknown);
    assert_eq!(app.engine().load().running, 1);
    let path = format!("{PATH}/resp_of_one/cancel");
    let cancelled = app.request(request(Some("one"), &Method::POST, &path, None)).await;
    assert_eq!(cancelled.ok()["status"], "cancelled");
}

/// That an id is taken would say that somebody has it.
#[tokio::test]
async fn two_keys_may_choose_the_same_id() {
    let app = keyed();
    for (key, text) in [("one", "I am one"), ("two", "I am two")] {
        let body = json!({ "input": text, "request_id": "resp_1" });
        assert_eq!(post(&app, Some(key), PATH, &body).await.status, 200, "{key}");
        assert_eq!(post(&app, Some(key), PATH, &body).await.error()["param"], "request_id", "{key}");
    }
    for (key, text) in [("one", "I am one"), ("two", "I am two")] {
        let path = format!("{PATH}/resp_1/input_items");
        let items = app.request(request(Some(key), &Method::GET, &path, None)).await.ok();
        assert_eq!(items["data"][0]["content"][0]["text"], text);
    }
}

/// A store outlives keys: what was kept for everybody is nobody's once there are keys, unless they share.
#[tokio::test]
async fn records_without_an_owner_are_found_where_all_clients_are_one() {
    let store: Arc<dyn ResponseStore> = Arc::new(MemoryStore::new(1 << 20, std::time::Duration::from_hours(1)));
    let [open, keyed, shared] =
        [TestApp::new().says("Hello there"), keyed(), shared()].map(|app| app.response_store(Arc::clone(&store)));
    let body = json!({ "input": "Hi", "request_id": "resp_open" });
    let response = post(&open, None, PATH, &body).await.ok();
    let body = json!({ "input": "Hi", "request_id": "resp_keyed" });
    post(&keyed, Some("one"), PATH, &body).await.ok();
    let found = async |app: &TestApp, key: Option<&str>, id: &str| {
        app.request(request(key, &Method::GET, &format!("{PATH}/{id}"), None)).await
    };
    assert_eq!(found(&shared, Some("two"), "resp_open").await.ok(), response);
    assert_eq!(found(&open, None, "resp_open").await.ok(), response);
    assert_eq!(found(&keyed, Some("one"), "resp_open").await.status, 404);
    for (app, key) in [(&shared, Some("one")), (&open, None), (&keyed, Some("two"))] {
        assert_eq!(found(app, key, "resp_keyed").await.status, 404);
    }
    found(&keyed, Some("one"), "resp_keyed").await.ok();
}

#[tokio::test]
async fn requests_of_another_key_are_not_aborted() {
    let chat = json!({ "messages": [{ "role": "user", "content": "hello" }], "request_id": "a" });
    let text = json!({ "prompt": "hello", "request_id": "a" });
    let batch = json!({ "messages": [[{ "role": "user", "content": "hello" }]], "request_id": "a" });
    let messages = json!({ "model": "tiny", "messages": [{ "role": "user", "content": "hello" }], "max_tokens": 9,
        "request_id": "a" });
    let ids = json!({ "token_ids": [5, 6], "sampling_params": {}, "request_id": "a" });
    let responses = json!({ "input": "hello", "request_id": "a" });
    for (path, body, id) in [
        ("/v1/chat/completions", &chat, "chatcmpl-a"),
        ("/v1/completions", &text, "cmpl-a"),
        ("/v1/chat/completions/batch", &batch, "chatcmpl-a_0"),
        ("/v1/messages", &messages, "chatcmpl-a"),
        ("/inference/v1/generate", &ids, "generate-tokens-a"),
        (PATH, &responses, "a"),
    ] {
        for shares in [false, true] {
            let gate = Gate::shut();
            let app = if shares { shared() } else { keyed() }.gate(&gate);
            let mut router = app.router();
            let running = request(Some("one"), &Method::POST, path, Some(body));
            let running = tokio::spawn(async move { router.call(running).await.unwrap() });
            app.until_load(1, 0).await;
            let abort = json!({ "request_ids": [id] });
            let of_stranger = post(&app, Some("two"), ABORT, &abort).await;
            assert_eq!((of_stranger.status, of_stranger.text.as_str()), (200, ""), "{path}");
            if !shares {
                assert_eq!(app.engine().load().running, 1, "{path}");
                assert_eq!(post(&app, Some("one"), ABORT, &abort).await.status, 200);
            }
            assert_eq!(running.await.unwrap().status(), 200, "{path}");
            assert_eq!(app.engine().load(), EngineLoad::default(), "{path}");
        }
    }
}
