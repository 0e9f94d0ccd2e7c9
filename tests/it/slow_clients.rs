//! Clients that do not read, do not go on, or only sit there: they end, and hold up nobody else.

use std::{io::Read, time::Duration};

use axum::body::{Body, Bytes};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tito::{
    engine::{Engine, EngineLoad},
    server::ServerConfig,
};

use crate::it::{
    app::{TestApp, posted},
    served::Served,
};

const SOON: Duration = Duration::from_millis(1);
const COMPLETIONS: &str = "/v1/completions";

/// A stream that does not end by itself, in the dialect of each path.
fn endless(path: &str) -> Value {
    let mut body = json!({ "stream": true, "ignore_eos": true, "model": "tiny", "max_tokens": 3000 });
    match path {
        COMPLETIONS => body["prompt"] = json!("hello"),
        "/v1/responses" => {
            body = json!({ "stream": true, "ignore_eos": true, "input": "hello", "max_output_tokens": 3000 });
        }
        "/inference/v1/generate" => {
            let sampling = json!({ "max_tokens": 3000, "ignore_eos": true });
            body = json!({ "stream": true, "token_ids": [5, 6], "sampling_params": sampling });
        }
        _ => body["messages"] = json!([{ "role": "user", "content": "hello" }]),
    }
    body
}

#[tokio::test]
async fn a_stream_that_is_not_read_ends_with_an_error_in_its_own_dialect() {
    let app = TestApp::new().patience(SOON);
    for path in [COMPLETIONS, "/v1/chat/completions", "/v1/messages", "/v1/responses", "/inference/v1/generate"] {
        let response = app.send(posted(path, endless(path).to_string())).await;
        assert_eq!(response.status(), 200, "{path}");
        let mut frames = response.into_body().into_data_stream();
        let mut text = String::new();
        // Some dialects say something before the first token.
        while app.engine().load().running == 0 || text.len() < 3000 {
            text.push_str(std::str::from_utf8(&frames.next().await.unwrap().unwrap()).unwrap());
        }
        app.until_load(0, 0).await;
        let mut rest = String::new();
        while let Some(frame) = frames.next().await {
            rest.push_str(std::str::from_utf8(&frame.unwrap()).unwrap());
        }
        assert!(rest.contains("was not read for longer than --stream-stall-timeout"), "{path}: {rest}");
        assert!(rest.contains("error") && !rest.contains("\"finish_reason\":\"stop\""), "{path}: {rest}");
    }
}

#[tokio::test]
async fn an_answer_in_json_does_not_stall_however_long_it_takes() {
    let app = TestApp::new().patience(Duration::ZERO);
    let mut body = endless(COMPLETIONS);
    body["stream"] = json!(false);
    let answer = app.post(COMPLETIONS, body).await.ok();
    assert_eq!(answer["usage"]["completion_tokens"], 3000);
}

#[tokio::test]
async fn a_connection_that_is_not_read_is_closed_and_its_sequences_end() {
    let app = TestApp::new().max_model_len(1 << 24);
    let config = ServerConfig { stream_stall_timeout: Some(SOON), ..ServerConfig::default() };
    let served = Served::new(&app, &config).await;
    let mut body = endless(COMPLETIONS);
    body["max_tokens"] = json!(1 << 23);
    body["logprobs"] = json!(5);
    let mut unread = served.connect(COMPLETIONS, &body);
    app.until_load(1, 0).await;
    app.until_load(0, 0).await;
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        drop(unread.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let text = read.await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && !text.contains("[DONE]"), "{}", text.len());
}

#[tokio::test]
async fn a_body_that_stops_coming_is_refused() {
    let app = TestApp::new().server(|server| server.request_patience = SOON);
    let begun = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"{\"prompt\":"))]);
    let answer = app.request(posted(COMPLETIONS, Body::from_stream(begun.chain(stream::pending())))).await;
    assert_eq!((answer.status, &answer.error()["type"]), (408, &json!("Request Timeout")), "{}", answer.text);
    assert_eq!(app.engine().load(), EngineLoad::default());
}

#[tokio::test]
async fn an_answer_in_one_piece_that_could_fill_the_memory_is_refused_and_a_stream_is_not() {
    let app = TestApp::new().max_model_len(1 << 20).policy(|policy| policy.max_logprobs = None);
    let asked = |n: usize, max_tokens: usize, logprobs: i64| {
        json!({ "prompt": "hello", "n": n, "temperature": 1, "max_tokens": max_tokens, "logprobs": logprobs,
                "stop_token_ids": (0..326).collect::<Vec<_>>() })
    };
    let refused = app.post(COMPLETIONS, asked(16, 10_000, 300)).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("logprobs")), "{}", refused.text);
    let message = refused.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("48000000 log-probs") && message.contains("stream"), "{message}");
    // All of the vocabulary is as many.
    assert_eq!(app.post(COMPLETIONS, asked(16, 10_000, -1)).await.status, 400);
    // What reinforcement learning asks for.
    for (n, max_tokens, logprobs) in [(64, 32_000, 20), (8, 8_000, 100), (1, 100_000, 300)] {
        app.post(COMPLETIONS, asked(n, max_tokens, logprobs)).await.ok();
    }
    let mut stream = asked(16, 10_000, 300);
    stream["stream"] = json!(true);
    assert_eq!(app.post(COMPLETIONS, stream).await.status, 200);
    let prompt = json!({ "prompt": vec![5; 200_000], "max_tokens": 1, "prompt_logprobs": 300 });
    let refused = app.post(COMPLETIONS, prompt).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("prompt_logprobs")), "{}", refused.text);
}
