//! `metrics` of answers, with `--enable-per-request-metrics`.

use std::time::Duration;

use serde_json::{Value, json};
use tito::engine::RequestTimes;

use super::responses;
use crate::it::app::{MODEL, TestApp};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

/// 8 ms in the queue, 50 ms for the prompt, and 25 ms for each token after the first one.
fn times() -> Vec<RequestTimes> {
    let times = |decode| {
        let [queued, prefill, decode] = [8, 50, decode].map(Duration::from_millis);
        RequestTimes { queued, prefill, decode }
    };
    (0..9).map(|token| times(25 * token)).collect()
}

/// What is said of so many tokens, as a whole answer spells it.
fn of_tokens(tokens: u32) -> Value {
    let (count, decode) = (f64::from(tokens), 25.0 * f64::from(tokens - 1));
    json!({
        "time_to_first_token_ms": 50.0,
        "generation_time_ms": decode,
        "queue_time_ms": 8.0,
        "mean_itl_ms": (tokens > 1).then_some(25.0),
        "tokens_per_second": count / Duration::from_millis(50 + 25 * u64::from(tokens - 1)).as_secs_f64(),
        "speculative_decoding": null,
    })
}

/// What a stream leaves out.
fn without_nulls(mut metrics: Value) -> Value {
    metrics.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    metrics
}

/// What asks for `tokens` tokens at most.
fn body(path: &str, tokens: u32, more: Value) -> Value {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let mut body = match path {
        COMPLETIONS => json!({ "prompt": "hello", "max_tokens": tokens }),
        RESPONSES => json!({ "input": "hello", "max_output_tokens": tokens }),
        _ => json!({ "model": MODEL, "messages": messages, "max_tokens": tokens }),
    };
    let Value::Object(fields) = more else { panic!("no fields: {more}") };
    body.as_object_mut().unwrap().extend(fields);
    body
}

/// A server that never ends by itself before the ninth token.
fn app(times: Vec<RequestTimes>) -> TestApp {
    TestApp::new().script([40, 41, 42, 43, 44, 45, 46, 47, 48]).request_metrics(times)
}

fn streamed() -> Value {
    json!({ "stream": true, "stream_options": { "include_usage": true } })
}

#[tokio::test]
async fn a_whole_answer_has_the_times_of_its_tokens() {
    let app = app(times());
    for tokens in [1, 2, 5] {
        for path in [CHAT, COMPLETIONS, RESPONSES] {
            let answer = app.post(path, body(path, tokens, json!({}))).await.ok();
            assert_eq!(answer["metrics"], of_tokens(tokens), "{path}");
        }
    }
}

#[tokio::test]
async fn a_stop_string_ends_the_times_too() {
    let app = app(times());
    let said = app.post(COMPLETIONS, body(COMPLETIONS, 3, json!({}))).await.ok()["choices"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    let end = said.chars().last().unwrap().to_string();
    let cut = app.post(COMPLETIONS, body(COMPLETIONS, 9, json!({ "stop": end }))).await.ok();
    assert_eq!(cut["choices"][0]["stop_reason"], end);
    let tokens = cut["usage"]["completion_tokens"].as_u64().unwrap();
    assert!((1..=3).contains(&tokens), "{cut}");
    assert_eq!(cut["metrics"], of_tokens(u32::try_from(tokens).unwrap()));
}

#[tokio::test]
async fn the_last_chunk_of_a_stream_has_them_with_usage_and_no_other_has() {
    let app = app(times());
    for path in [CHAT, COMPLETIONS] {
        for (tokens, interval) in [(1, 1), (5, 1), (5, 3)] {
            let mut more = streamed();
            more["stream_interval"] = json!(interval);
            let events = app.post(path, body(path, tokens, more)).await.events();
            let (last, others) = events.split_last().unwrap();
            assert_eq!(last["metrics"], without_nulls(of_tokens(tokens)), "{path}");
            assert!(others.iter().all(|event| event.get("metrics").is_none()), "{path}");
        }
        let events = app.post(path, body(path, 5, json!({ "stream": true }))).await.events();
        assert!(events.iter().all(|event| event.get("metrics").is_none()), "{path}");
    }
}

#[tokio::test]
async fn the_event_that_ends_a_response_has_them_and_so_has_the_response_that_was_kept() {
    let app = app(times());
    let events = responses::events(&app.post(RESPONSES, body(RESPONSES, 4, json!({ "stream": true }))).await);
    let (last, others) = events.split_last().unwrap();
    assert_eq!(last["response"]["metrics"], of_tokens(4));
    assert!(others.iter().all(|event| event["response"].get("metrics").is_none()));
    let id = last["response"]["id"].as_str().unwrap();
    assert_eq!(app.get(&format!("{RESPONSES}/{id}")).await.ok()["metrics"], of_tokens(4));
}

#[tokio::test]
async fn several_sequences_have_none() {
    let app = app(times());
    let two = json!({ "n": 2, "temperature": 1.0 });
    for (path, more) in [(CHAT, two.clone()), (COMPLETIONS, two), (COMPLETIONS, json!({ "prompt": ["a", "b"] }))] {
        let answer = app.post(path, body(path, 3, more.clone())).await.ok();
        assert_eq!(answer.get("metrics"), Some(&Value::Null), "{path}: {more}");
        let mut more = more;
        more.as_object_mut().unwrap().extend(streamed().as_object().unwrap().clone());
        let events = app.post(path, body(path, 3, more)).await.events();
        assert!(events.iter().all(|event| event.get("metrics").is_none()), "{path}");
    }
    let batch = json!({ "messages": [[{ "role": "user", "content": "a" }], [{ "role": "user", "content": "b" }]] });
    let answer = app.post("/v1/chat/completions/batch", body(CHAT, 3, batch)).await.ok();
    assert_eq!(answer.get("metrics"), Some(&Value::Null));
}

#[tokio::test]
async fn an_engine_that_reports_no_times_leaves_all_of_them_null() {
    let app = app(Vec::new());
    for path in [CHAT, COMPLETIONS, RESPONSES] {
        let metrics = app.post(path, body(path, 3, json!({}))).await.ok()["metrics"].take();
        let nulls = metrics.as_object().unwrap().values().filter(|value| value.is_null()).count();
        assert_eq!(nulls, 6, "{path}: {metrics}");
    }
}

#[tokio::test]
async fn nothing_is_said_without_the_flag_or_where_vllm_says_nothing() {
    let silent = TestApp::new().says("hello");
    for path in [CHAT, COMPLETIONS] {
        assert_eq!(silent.post(path, body(path, 3, json!({}))).await.ok().get("metrics"), Some(&Value::Null), "{path}");
        let events = silent.post(path, body(path, 3, streamed())).await.events();
        assert!(events.iter().all(|event| event.get("metrics").is_none()), "{path}");
    }
    assert_eq!(silent.post(RESPONSES, body(RESPONSES, 3, json!({}))).await.ok().get("metrics"), None);
    assert_eq!(app(times()).post(MESSAGES, body(MESSAGES, 3, json!({}))).await.ok().get("metrics"), None);
}
