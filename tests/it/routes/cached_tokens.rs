//! What the answers say about a cache of prefixes, and who shares it: `usage.prompt_tokens_details`, `cache_salt`.

use serde_json::{Value, json};

use crate::it::app::TestApp;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const GENERATE: &str = "/generate";

/// A prompt of five tokens for `/v1/completions`, and a conversation.
fn body(more: Value) -> Value {
    let mut body = json!({ "prompt": [5, 6, 7, 8, 9], "messages": [{ "role": "user", "content": "hello" }] });
    let Value::Object(fields) = more else { panic!("no fields: {more}") };
    body.as_object_mut().unwrap().extend(fields);
    body
}

fn streamed(more: Value) -> Value {
    let mut body = body(more);
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true, "continuous_usage_stats": true });
    body
}

async fn details(app: &TestApp, path: &str, more: Value) -> Value {
    app.post(path, body(more)).await.ok()["usage"]["prompt_tokens_details"].clone()
}

#[tokio::test]
async fn usage_tells_how_much_of_the_prompt_was_cached() {
    let app = TestApp::new().says("hello").cached_tokens(3).prompt_tokens_details();
    for path in [CHAT, COMPLETIONS] {
        assert_eq!(details(&app, path, json!({})).await, json!({ "cached_tokens": 3 }), "{path}");
    }
}

#[tokio::test]
async fn a_response_tells_it_without_being_asked() {
    let app = TestApp::new().says("hello").cached_tokens(3);
    let response = app.post("/v1/responses", json!({ "input": "hello" })).await.ok();
    assert_eq!(response["usage"]["input_tokens_details"]["cached_tokens"], 3);
}

#[tokio::test]
async fn the_last_chunk_of_a_stream_tells_it_and_no_other_does() {
    let app = TestApp::new().says("hello").cached_tokens(3).prompt_tokens_details();
    for path in [CHAT, COMPLETIONS] {
        let events = app.post(path, streamed(json!({}))).await.events();
        let (last, others) = events.split_last().unwrap();
        assert_eq!(last["usage"]["prompt_tokens_details"], json!({ "cached_tokens": 3 }), "{path}");
        assert!(!others.is_empty(), "{path}");
        for other in others {
            let usage = other["usage"].as_object().unwrap();
            assert!(!usage.contains_key("prompt_tokens_details"), "{path}: {other}");
        }
    }
}

#[tokio::test]
async fn a_cache_that_had_nothing_is_told_from_none() {
    let empty = TestApp::new().says("hello").cached_tokens(0).prompt_tokens_details();
    let none = TestApp::new().says("hello").prompt_tokens_details();
    for path in [CHAT, COMPLETIONS] {
        assert_eq!(details(&empty, path, json!({})).await, json!({ "cached_tokens": 0 }), "{path}");
        assert_eq!(details(&none, path, json!({})).await, Value::Null, "{path}");
    }
}

#[tokio::test]
async fn without_the_flag_nothing_is_told() {
    let app = TestApp::new().says("hello").cached_tokens(3);
    for path in [CHAT, COMPLETIONS] {
        assert_eq!(details(&app, path, json!({})).await, Value::Null, "{path}");
        let events = app.post(path, streamed(json!({}))).await.events();
        let usage = events.last().unwrap()["usage"].as_object().unwrap();
        assert!(!usage.contains_key("prompt_tokens_details"), "{path}");
    }
}

#[tokio::test]
async fn each_prompt_counts_once_whatever_the_number_of_its_answers() {
    let app = TestApp::new().says("hello").cached_tokens(3).prompt_tokens_details();
    let many = json!({ "prompt": [[5, 6, 7, 8, 9], [5, 6]], "n": 3, "temperature": 1.0 });
    let usage = app.post(COMPLETIONS, body(many.clone())).await.ok()["usage"].clone();
    assert_eq!(usage["prompt_tokens"], 7);
    assert_eq!(usage["prompt_tokens_details"], json!({ "cached_tokens": 4 }));
    let last = app.post(COMPLETIONS, streamed(many)).await.events().pop().unwrap();
    assert_eq!(last["usage"]["prompt_tokens_details"], json!({ "cached_tokens": 4 }));
    let chat = details(&app, CHAT, json!({ "n": 3, "temperature": 1.0 })).await;
    assert_eq!(chat, json!({ "cached_tokens": 3 }));
}

#[tokio::test]
async fn what_is_said_about_the_cache_is_no_log_prob() {
    let app = TestApp::new().says("hello").cached_tokens(3);
    assert_eq!(app.post(CHAT, body(json!({}))).await.ok()["prompt_logprobs"], Value::Null);
    let answer = app.post(COMPLETIONS, body(json!({ "logprobs": 0 }))).await.ok();
    assert_eq!(answer["choices"][0]["prompt_logprobs"], Value::Null);
    assert!(answer["choices"][0]["logprobs"]["token_logprobs"][0].is_number());
    let scored = app.post(CHAT, body(json!({ "prompt_logprobs": 0 }))).await.ok();
    let tokens = scored["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(scored["prompt_logprobs"].as_array().unwrap().len() as u64, tokens);
}

#[tokio::test]
async fn the_salt_reaches_the_engine_letter_for_letter() {
    let app = TestApp::new().says("hello");
    let longest = "ä".repeat(128);
    for path in [CHAT, COMPLETIONS] {
        for salt in ["a", " ", "x y", &longest] {
            app.post(path, body(json!({ "cache_salt": salt }))).await.ok();
            assert_eq!(app.engine().latest_cache_salt().as_deref(), Some(salt), "{path}");
        }
        for none in [json!({}), json!({ "cache_salt": null })] {
            app.post(path, body(none)).await.ok();
            assert_eq!(app.engine().latest_cache_salt(), None, "{path}");
        }
    }
}

#[tokio::test]
async fn a_salt_that_vllm_refuses_is_refused_in_its_words() {
    let empty = "Parameter 'cache_salt' must be a non-empty string if provided. (parameter=cache_salt)";
    let odd = r"Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\', or NUL. (parameter=cache_salt)";
    let long = "a".repeat(129);
    let app = TestApp::new();
    for path in [CHAT, COMPLETIONS] {
        let refused = [
            (json!(""), empty),
            (json!(7), empty),
            (json!(["a"]), empty),
            (json!(long), odd),
            (json!("a@b"), odd),
            (json!("a/b"), odd),
            (json!("a\\b"), odd),
            (json!("a\0b"), odd),
        ];
        for (salt, message) in refused {
            let answer = app.post(path, body(json!({ "cache_salt": salt }))).await;
            assert_eq!(answer.status, 400, "{path} {salt}");
            let error = json!({ "message": message, "type": "BadRequestError", "param": "cache_salt", "code": 400 });
            assert_eq!(answer.error(), error, "{path} {salt}");
        }
    }
}

/// SGLang keeps requests apart by both.
#[tokio::test]
async fn a_salt_and_an_extra_key_keep_requests_apart_together() {
    let app = TestApp::new().says("hello");
    let salt = async |path: &str, more: Value| {
        let mut body = body(more);
        if path == GENERATE {
            body.as_object_mut().unwrap().retain(|name, _| name.starts_with("cache") || name.starts_with("extra"));
            body["input_ids"] = json!([5, 6]);
        }
        app.post(path, body).await.ok();
        app.engine().latest_cache_salt().unwrap()
    };
    let both = |salt: &str, key: &str| json!({ "cache_salt": salt, "extra_key": key });
    let expected = salt(CHAT, both("s", "x")).await;
    for path in [CHAT, COMPLETIONS, GENERATE] {
        assert_eq!(salt(path, both("s", "x")).await, expected, "{path}");
        assert_eq!(&*salt(path, json!({ "cache_salt": "s", "extra_key": null })).await, "s", "{path}");
        assert_eq!(&*salt(path, json!({ "extra_key": "x" })).await, "x", "{path}");
        let mut others = vec![expected.clone(), "s".into(), "x".into()];
        for (own, key) in [("s", "y"), ("t", "x"), ("x", "s"), ("s", "s")] {
            others.push(salt(path, both(own, key)).await);
        }
        let count = others.len();
        others.sort_unstable();
        others.dedup();
        assert_eq!(others.len(), count, "{path}: {others:?}");
        for (own, key) in [("s", ""), ("s", "a/b"), ("", "x")] {
            let mut wrong = body(both(own, key));
            if path == GENERATE {
                wrong = json!({ "input_ids": [5], "cache_salt": own, "extra_key": key });
            }
            assert_eq!(app.post(path, wrong).await.status, 400, "{path} {own:?} {key:?}");
        }
    }
    // What is rendered says it too.
    let rendered = app.post(&format!("{CHAT}/render"), body(both("s", "x"))).await.ok();
    app.post("/inference/v1/generate", rendered).await.ok();
    assert_eq!(app.engine().latest_cache_salt().unwrap(), expected);
}
