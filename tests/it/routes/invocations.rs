//! `POST /invocations`: chat, then text, then a refusal.

use serde_json::{Value, json};

use crate::it::app::{TestApp, redacted};

const PATH: &str = "/invocations";

#[tokio::test]
async fn a_body_is_served_as_what_it_is() {
    let app = TestApp::new();
    let chat = json!({ "messages": [{ "role": "user", "content": "hello" }], "seed": 3, "request_id": "a" });
    let text = json!({ "prompt": "hello", "seed": 3, "request_id": "a" });
    for (body, path) in [(chat, "/v1/chat/completions"), (text, "/v1/completions")] {
        let direct = redacted(app.post(path, body.clone()).await.ok());
        // What was said before is not continued from memory here: the messages have no assistant.
        assert_eq!(redacted(app.post(PATH, body.clone()).await.ok()), direct, "{path}");
        let mut streamed = body;
        streamed["stream"] = json!(true);
        assert!(!app.post(PATH, streamed).await.events().is_empty());
    }
}

#[tokio::test]
async fn what_is_neither_is_refused_with_what_would_be_taken() {
    let app = TestApp::new();
    for body in [json!({ "prompt": { "a": 1 } }), json!([1]), json!(5)] {
        let answer = app.post(PATH, body).await;
        let error = answer.error();
        assert_eq!((answer.status, &error["type"], &error["param"]), (400, &json!("BadRequestError"), &Value::Null));
        let message = "Cannot find suitable handler for request. Expected one of: ['ChatCompletionRequest', \
                       'CompletionRequest']";
        assert_eq!(error["message"], message);
    }
    // A body that has the shape of a request is answered as that request is.
    let error = app.post(PATH, json!({ "inputs": "hello" })).await.error();
    assert_eq!(error["param"], "prompt");
    let error = app.post(PATH, json!({ "messages": [] })).await.error();
    assert!(error["message"].as_str().unwrap().contains("empty conversation"), "{error}");
}
