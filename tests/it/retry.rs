//! Every error says whether the request may be sent again, where, and what may have been done.

use axum::{
    body::Body,
    http::{Method, Request},
    response::IntoResponse,
};
use serde_json::{Value, json};
use strum::VariantArray;
use tito::engine::{EngineError, scripted::Gate};

use crate::{
    it::app::{Answer, MODEL, TestApp, posted},
    wire::error::{ApiError, ErrorKind},
};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

fn header(response: &axum::response::Response) -> String {
    response.headers()["x-retry"].to_str().unwrap().to_owned()
}

fn said(answer: &Answer) -> &str {
    answer.headers["x-retry"].to_str().unwrap()
}

/// What each kind of error says: a new kind has to be decided here too.
fn expected(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid
        | ErrorKind::Malformed
        | ErrorKind::Unreadable
        | ErrorKind::Overflow
        | ErrorKind::InvalidResponse
        | ErrorKind::Unsupported
        | ErrorKind::TooLarge => "never; done=nothing",
        ErrorKind::UnknownModel | ErrorKind::UnknownResponse | ErrorKind::NotFound | ErrorKind::Gone => {
            "elsewhere; done=nothing"
        }
        ErrorKind::Conflict
        | ErrorKind::Overloaded
        | ErrorKind::TooMany
        | ErrorKind::Paused
        | ErrorKind::TimedOut
        | ErrorKind::Unprocessable => "anywhere; done=nothing",
        ErrorKind::Internal => "elsewhere; done=maybe",
    }
}

#[test]
fn every_kind_of_error_says_it_in_answers_and_in_streams() {
    for kind in ErrorKind::VARIANTS {
        let error = ApiError::new(*kind, None, "no");
        let event = error.event().error;
        let in_stream = format!("{}; done={}", event.retry.unwrap(), event.done.unwrap());
        assert_eq!(in_stream, expected(*kind), "{kind:?}");
        let body = serde_json::to_value(error.body()).unwrap();
        assert_eq!(body["error"].as_object().unwrap().len(), 4, "a body has vLLM's fields alone: {body}");
        assert_eq!(header(&error.into_response()), expected(*kind), "{kind:?}");
    }
}

#[test]
fn an_engine_that_had_begun_says_that_something_may_have_been_sampled() {
    for (error, expected) in [
        (EngineError::Overloaded, "anywhere; done=nothing"),
        (EngineError::Paused, "anywhere; done=nothing"),
        (EngineError::ShutDown, "anywhere; done=nothing"),
        (EngineError::TooManySequences { sequences: 2, most: 1 }, "never; done=nothing"),
        (EngineError::Unread, "anywhere; done=maybe"),
        (EngineError::WithoutWeights { missing: 1 }, "anywhere; done=nothing"),
        (EngineError::Unsupported("no".to_owned()), "never; done=maybe"),
        (EngineError::Uncaptured("full".to_owned()), "elsewhere; done=maybe"),
        (EngineError::Failed("lost".to_owned()), "elsewhere; done=maybe"),
    ] {
        assert_eq!(header(&ApiError::from(error.clone()).into_response()), expected, "{error}");
    }
}

#[tokio::test]
async fn answers_that_no_handler_gave_say_it_too() {
    let app = TestApp::new().keys(&["key"]);
    for (method, path, status) in
        [(Method::POST, CHAT, 401), (Method::POST, "/pause", 401), (Method::DELETE, "/health", 405)]
    {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let answer = app.request(request).await;
        assert_eq!((answer.status, said(&answer)), (status, "never; done=nothing"), "{path}");
    }
    let app = TestApp::new();
    for path in ["/nothing", "/pause", "/v1/nothing"] {
        let answer = app.post(path, json!({})).await;
        assert_eq!((answer.status, said(&answer)), (404, "never; done=nothing"), "{path}");
    }
    let unreadable = app.request(posted(CHAT, vec![0xff])).await;
    assert_eq!((unreadable.status, said(&unreadable)), (400, "never; done=nothing"));
    let unknown = app.get("/v1/responses/resp_1").await;
    assert_eq!((unknown.status, said(&unknown)), (404, "elsewhere; done=nothing"));
    for (path, body) in [(MESSAGES, json!({ "max_tokens": 0, "messages": [] })), (CHAT, json!({ "messages": 5 }))] {
        let refused = app.post(path, body).await;
        assert_eq!((refused.status, said(&refused)), (400, "never; done=nothing"), "{path}");
    }
    let well = app.post(CHAT, json!({ "messages": [{ "role": "user", "content": "hello" }], "max_tokens": 1 })).await;
    assert_eq!((well.status, well.headers.get("x-retry")), (200, None));
}

/// A request for a stream of every dialect.
fn streamed() -> [(&'static str, Value); 5] {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    [
        (CHAT, json!({ "messages": messages, "max_tokens": 8, "stream": true })),
        ("/v1/completions", json!({ "prompt": "hello", "max_tokens": 8, "stream": true })),
        (MESSAGES, json!({ "model": MODEL, "messages": messages, "max_tokens": 8, "stream": true })),
        (RESPONSES, json!({ "input": "hello", "stream": true })),
        ("/inference/v1/generate", json!({ "token_ids": [5], "sampling_params": { "max_tokens": 8 }, "stream": true })),
    ]
}

#[tokio::test]
async fn streams_of_every_dialect_say_it_in_the_error() {
    let app = TestApp::new().gate(&Gate::failing_after(1));
    for (path, body) in streamed() {
        let answer = app.post(path, body).await;
        let data = answer.text.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = data.filter_map(|data| serde_json::from_str(data).ok()).collect();
        let error = events.iter().rev().find_map(|event| event["error"].as_object());
        let error = error.unwrap_or_else(|| panic!("{path}: {}", answer.text));
        assert_eq!((&error["retry"], &error["done"]), (&json!("elsewhere"), &json!("maybe")), "{path}");
    }
}

#[tokio::test]
async fn streams_that_are_refused_before_they_begin_say_it_in_the_head() {
    let app = TestApp::new().gate(&Gate::shut()).seats(1).max_waiting(1);
    let [(_, engaging), ..] = streamed();
    let _engaged = [app.open(CHAT, engaging.clone()).await, app.open(CHAT, engaging).await];
    let background = json!({ "input": "hello", "background": true, "stream": true });
    for (path, body) in streamed().into_iter().chain([(RESPONSES, background)]) {
        let answer = app.post(path, body).await;
        assert_eq!((answer.status, said(&answer)), (503, "anywhere; done=nothing"), "{path}: {}", answer.text);
    }
}

#[tokio::test]
async fn a_request_that_never_fits_is_told_so_and_is_not_to_be_sent_again() {
    let app = TestApp::new().seats(1).max_waiting(2);
    let chat = json!([{ "role": "user", "content": "hello" }]);
    let cases = [
        ("/v1/completions", json!({ "prompt": "hello", "n": 4, "temperature": 1, "max_tokens": 1 })),
        ("/v1/completions", json!({ "prompt": vec!["hello"; 4], "max_tokens": 1, "stream": true })),
        (CHAT, json!({ "messages": chat, "n": 4, "temperature": 1, "max_completion_tokens": 1 })),
        ("/inference/v1/generate", json!({ "token_ids": [5], "sampling_params": { "n": 4, "temperature": 1 } })),
    ];
    for (path, body) in cases {
        let answer = app.post(path, body).await;
        assert_eq!((answer.status, said(&answer)), (400, "never; done=nothing"), "{path}: {}", answer.text);
        let error = answer.error();
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("4 sequences") && message.contains("room for 3"), "{path}: {message}");
        assert!(message.contains("times n,") && message.contains("--max-waiting"), "{path}: {message}");
        assert_eq!(error["param"], "n", "{path}");
    }
    let fitting = json!({ "prompt": "hello", "n": 3, "temperature": 1, "max_tokens": 1 });
    app.post("/v1/completions", fitting).await.ok();
}
