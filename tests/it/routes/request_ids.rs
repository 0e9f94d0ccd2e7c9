//! Ids that clients choose: no answer repeats one without a bound.

use axum::http::HeaderValue;
use serde_json::{Value, json};

use crate::it::app::{Answer, MODEL, TestApp, posted};

fn bodies() -> Vec<(&'static str, Value)> {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let chat = json!({ "model": MODEL, "max_tokens": 4, "messages": messages });
    let text = json!({ "prompt": "hello", "max_tokens": 4 });
    vec![
        ("/v1/chat/completions", chat.clone()),
        ("/v1/chat/completions/batch", json!({ "messages": [messages], "max_tokens": 4 })),
        ("/v1/chat/completions/render", chat.clone()),
        ("/v1/completions", text.clone()),
        ("/v1/completions/render", text),
        ("/v1/messages", chat),
        ("/inference/v1/generate", json!({ "token_ids": [5, 6], "sampling_params": { "max_tokens": 4 } })),
        ("/v1/responses", json!({ "input": "hello", "max_output_tokens": 4 })),
    ]
}

fn app() -> TestApp {
    TestApp::new().says("hello").server(|server| server.request_id_headers = true)
}

/// Asks with an id in the body or in the header.
async fn asked(app: &TestApp, path: &str, mut body: Value, id: &str, in_header: bool) -> Answer {
    if !in_header {
        body["request_id"] = json!(id);
    }
    let mut request = posted(path, body.to_string());
    if in_header {
        request.headers_mut().insert("x-request-id", id.parse().unwrap());
    }
    app.request(request).await
}

#[tokio::test]
async fn an_id_that_is_too_long_is_refused_and_nowhere_repeated() {
    for (path, body) in bodies() {
        for stream in [false, true] {
            let mut body = body.clone();
            body["stream"] = json!(stream && !path.ends_with("/batch"));
            for length in [513, 70_000] {
                for in_header in [false, true] {
                    let answer = asked(&app(), path, body.clone(), &"x".repeat(length), in_header).await;
                    let named = if in_header { "X-Request-Id" } else { "request_id" };
                    // Only responses do not take theirs from the header.
                    let is_taken = !(in_header && path == "/v1/responses");
                    assert_eq!(answer.status, if is_taken { 400 } else { 200 }, "{path} {length} {named}");
                    assert!(!is_taken || answer.text.contains(named), "{path}: {}", answer.text);
                    assert!(!answer.text.contains(&"x".repeat(300)), "{path} {length} {named}");
                    let longest = answer.headers.values().map(HeaderValue::len).max();
                    assert!(longest.unwrap() < 300, "{path} {length} {named}: {:?}", answer.headers);
                }
            }
        }
    }
}

#[tokio::test]
async fn the_longest_id_is_taken() {
    for (path, body) in bodies() {
        for in_header in [false, true] {
            let answer = asked(&app(), path, body.clone(), &"x".repeat(512), in_header).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_derendered_has_an_id_of_this_servers_length() {
    let choice = json!({ "index": 0, "token_ids": [5], "finish_reason": "stop" });
    let given = json!({ "request_id": "x".repeat(1025), "choices": [choice] });
    for (path, body) in [
        ("/v1/chat/completions/derender", json!({ "generate_response": given })),
        ("/v1/chat/completions/derender", json!({ "stream": true, "generate_chunk": given })),
        ("/v1/completions/derender", json!({ "generate_responses": [given] })),
        ("/v1/completions/derender", json!({ "stream": true, "generate_chunk": given })),
    ] {
        let refused = app().post(path, body.clone()).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("request_id")), "{path} {body}");
    }
}

/// Proxies send the header whether or not they have an id.
#[tokio::test]
async fn an_empty_header_does_not_hide_the_id_of_the_body() {
    let mut request = json!({ "prompt": "hello", "max_tokens": 4 });
    request["request_id"] = json!("mine");
    let mut request = posted("/v1/completions", request.to_string());
    request.headers_mut().insert("x-request-id", HeaderValue::from_static(""));
    let answer = app().request(request).await.ok();
    assert!(answer["id"].as_str().unwrap().contains("mine"), "{answer}");
}
