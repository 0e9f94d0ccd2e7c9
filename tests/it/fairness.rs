//! Requests take turns in front of the engine, and none is too large for its server.

use axum::{body::Body, http::Request, response::Response};
use serde_json::{Value, json};
use tito::engine::{Engine as _, EngineLoad, scripted::Gate};
use tokio::task::JoinHandle;

use crate::it::app::{TestApp, posted};

const BATCH: &str = "/v1/chat/completions/batch";
const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn spawned(app: &TestApp, request: Request<Body>) -> JoinHandle<Response<Body>> {
    let mut router = app.router();
    tokio::spawn(async move { tower::Service::call(&mut router, request).await.unwrap() })
}

/// A request of `n` sequences of one token each.
fn asked(n: usize) -> Value {
    json!({ "prompt": "hello", "n": n, "max_tokens": 1, "ignore_eos": true, "return_token_ids": true })
}

fn in_session(path: &str, body: &Value, session: &str) -> Request<Body> {
    let mut request = posted(path, body.to_string());
    request.headers_mut().insert("x-session-id", session.parse().unwrap());
    request
}

fn conversations(count: usize) -> Value {
    let conversation = |index| json!([{ "role": "user", "content": format!("hello {index}") }]);
    json!({ "messages": (0..count).map(conversation).collect::<Vec<_>>(), "max_tokens": 1, "ignore_eos": true })
}

#[tokio::test]
async fn a_small_request_is_answered_before_a_large_one_that_came_first() {
    for large in [posted(COMPLETIONS, asked(12).to_string()), posted(BATCH, conversations(12).to_string())] {
        let gate = Gate::shut();
        let app = TestApp::new().gate(&gate).seats(1);
        let large = spawned(&app, large);
        app.until_load(1, 11).await;
        let small = spawned(&app, posted(COMPLETIONS, asked(1).to_string()));
        app.until_load(1, 12).await;
        // The large one is next in line, and then at its end.
        gate.pass(3);
        assert_eq!(small.await.unwrap().status(), 200);
        assert!(!large.is_finished());
        gate.open();
        assert_eq!(large.await.unwrap().status(), 200);
        assert_eq!(app.engine().load(), EngineLoad::default());
    }
}

#[tokio::test]
async fn a_session_has_its_turn_however_many_requests_another_one_has() {
    let chat = json!({ "messages": [{ "role": "user", "content": "hello" }], "max_tokens": 1, "ignore_eos": true });
    for (path, body) in [(COMPLETIONS, asked(1)), (CHAT, chat)] {
        let gate = Gate::shut();
        let app = TestApp::new().gate(&gate).seats(1);
        let mut many = Vec::new();
        for waiting in 0..6 {
            many.push(spawned(&app, in_session(path, &body, "many")));
            app.until_load(1, waiting).await;
        }
        let one = spawned(&app, in_session(path, &body, "one"));
        app.until_load(1, 6).await;
        gate.pass(3);
        assert_eq!(one.await.unwrap().status(), 200);
        assert!(many.iter().filter(|request| request.is_finished()).count() <= 2);
        gate.open();
        for request in many {
            assert_eq!(request.await.unwrap().status(), 200);
        }
    }
}

#[tokio::test]
async fn a_client_has_its_turn_however_many_requests_and_sessions_another_one_has() {
    let of_client = |key: &str, session: &str| {
        let mut request = in_session(COMPLETIONS, &asked(1), session);
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        request
    };
    let gate = Gate::shut();
    let app = TestApp::new().gate(&gate).seats(1).keys(&["many", "one"]);
    let mut many = Vec::new();
    for waiting in 0..6 {
        many.push(spawned(&app, of_client("many", &waiting.to_string())));
        app.until_load(1, waiting).await;
    }
    let one = spawned(&app, of_client("one", "0"));
    app.until_load(1, 6).await;
    gate.pass(3);
    assert_eq!(one.await.unwrap().status(), 200);
    gate.open();
    for request in many {
        assert_eq!(request.await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn the_choices_of_a_large_request_come_in_their_order_whatever_the_number_of_seats() {
    let body = json!({ "prompt": ["hello", "world"], "n": 40, "max_tokens": 3, "seed": 3, "return_token_ids": true });
    let choices = |answer: Value| answer["choices"].as_array().unwrap().clone();
    let one_by_one = choices(TestApp::new().seats(1).post(COMPLETIONS, body.clone()).await.ok());
    let at_once = choices(TestApp::new().seats(200).post(COMPLETIONS, body).await.ok());
    assert_eq!(one_by_one, at_once);
    assert!(one_by_one.iter().enumerate().all(|(index, choice)| choice["index"] == index));
    let alone = json!({ "prompt": "world", "max_tokens": 3, "seed": 3 + 39, "return_token_ids": true });
    let alone = choices(TestApp::new().post(COMPLETIONS, alone).await.ok());
    assert_eq!(one_by_one[79]["token_ids"], alone[0]["token_ids"]);
}

#[tokio::test]
async fn more_prompts_and_sequences_than_a_request_may_have_are_refused_by_name() {
    let app = TestApp::new().requests(|policy| (policy.max_prompts, policy.max_sequences) = (3, 8));
    let prompts = |count: usize, n: usize| json!({ "prompt": vec!["hello"; count], "n": n, "max_tokens": 1 });
    let cases = [
        (COMPLETIONS, prompts(4, 1), "prompt", "--max-request-prompts"),
        (COMPLETIONS, prompts(3, 3), "n", "--max-request-sequences"),
        (COMPLETIONS, prompts(1, 9), "n", "--max-request-sequences"),
        (BATCH, conversations(4), "messages", "--max-request-prompts"),
    ];
    for (path, body, param, flag) in cases {
        let answer = app.post(path, body).await;
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(param)), "{}", answer.text);
        assert!(answer.error()["message"].as_str().unwrap().contains(flag), "{}", answer.text);
    }
    for (path, body) in [(COMPLETIONS, prompts(2, 4)), (COMPLETIONS, prompts(3, 2)), (BATCH, conversations(3))] {
        assert_eq!(app.post(path, body).await.status, 200);
    }
}

#[tokio::test]
async fn what_the_flags_let_through_beyond_the_defaults_is_served() {
    let app = TestApp::new().requests(|policy| policy.max_prompts = 1_030);
    let prompts = |count: usize| json!({ "prompt": vec!["hello"; count], "max_tokens": 1 });
    assert_eq!(app.post(COMPLETIONS, prompts(1_025)).await.ok()["choices"].as_array().unwrap().len(), 1_025);
    let more = app.post(COMPLETIONS, prompts(1_031)).await;
    let message = "prompt list length 1031 exceeds the maximum allowed count of 1030. To increase this limit, start the \
                   server with a larger --max-request-prompts. (parameter=prompt)";
    assert_eq!((more.status, &more.error()["message"]), (400, &json!(message)));
}

#[tokio::test]
async fn n_alone_is_bounded_on_every_endpoint_that_has_it() {
    let app = TestApp::new().requests(|policy| policy.max_sequences = 8);
    let chat = json!({ "messages": [{ "role": "user", "content": "hello" }], "n": 9 });
    let generate = json!({ "token_ids": [1, 2], "sampling_params": { "n": 9 } });
    for (path, body) in [(CHAT, chat), ("/inference/v1/generate", generate)] {
        let answer = app.post(path, body).await;
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("n")), "{}", answer.text);
    }
}
