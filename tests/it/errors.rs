//! Bad requests: status, type, param and message, and that only an overflow of the context sounds like one.

use axum::{
    body::Body,
    http::{Method, Request, header},
};
use serde_json::{Value, json};
use tito::engine::scripted::Gate;

use crate::it::app::{Answer, MODEL, TestApp, VOCAB_SIZE, posted};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// What NeMo Gym looks for to tell an overflow from other 400s.
pub(crate) fn sounds_like_overflow(answer: &Answer) -> bool {
    answer.text.contains("max_tokens") || answer.text.contains("context length")
}

/// A refused request and what the refusal says; `message` is a part of it.
struct Refusal {
    body: Value,
    kind: &'static str,
    param: Option<&'static str>,
    message: &'static str,
}

fn wrong(field: Value, param: &'static str, message: &'static str) -> Refusal {
    Refusal { body: field, kind: "BadRequestError", param: Some(param), message }
}

fn unnamed(field: Value, message: &'static str) -> Refusal {
    Refusal { body: field, kind: "BadRequestError", param: None, message }
}

fn malformed(field: Value, param: &'static str) -> Refusal {
    Refusal { body: field, kind: "Bad Request", param: Some(param), message: param }
}

/// Fields that both endpoints have.
fn shared_refusals() -> Vec<Refusal> {
    vec![
        unnamed(json!({ "presence_penalty": 5 }), "presence_penalty must be in [-2, 2], got 5.0."),
        unnamed(json!({ "frequency_penalty": -2.5 }), "frequency_penalty must be in [-2, 2], got -2.5."),
        unnamed(json!({ "repetition_penalty": 0 }), "repetition_penalty must be greater than zero, got 0.0."),
        wrong(json!({ "temperature": 100 }), "temperature", "temperature must be in [0, 2], got 100.0."),
        wrong(json!({ "temperature": -1 }), "temperature", "temperature must be non-negative, got -1.0."),
        wrong(json!({ "top_p": 0 }), "top_p", "top_p must be in (0, 1], got 0.0. (parameter=top_p, value=0.0)"),
        wrong(json!({ "top_p": 1.1 }), "top_p", "top_p must be in (0, 1], got 1.1."),
        unnamed(json!({ "top_k": -2 }), "top_k must be 0 (disable), or at least 1, got -2."),
        unnamed(json!({ "min_p": 2 }), "min_p must be in [0, 1], got 2.0."),
        unnamed(json!({ "n": 0 }), "n must be at least 1, got 0."),
        unnamed(
            json!({ "n": 16_385 }),
            "n must be at most 16384, got 16385. To increase this limit, start the server with a larger --max-request-sequences.",
        ),
        unnamed(json!({ "n": 2, "temperature": 0 }), "n must be 1 when using greedy sampling, got 2."),
        unnamed(json!({ "stop": [""] }), "stop cannot contain an empty string."),
        unnamed(json!({ "stop": "" }), "stop cannot contain an empty string."),
        malformed(json!({ "stop": 5 }), "body.stop"),
        malformed(json!({ "stop_token_ids": ["x"] }), "body.stop_token_ids.0"),
        wrong(
            json!({ "stop_token_ids": [VOCAB_SIZE] }),
            "stop_token_ids",
            "out-of-vocab token ids. Vocabulary size: 326",
        ),
        wrong(json!({ "stop_token_ids": [-1] }), "stop_token_ids", "token_id(s) [-1] in stop_token_ids contain"),
        wrong(json!({ "allowed_token_ids": [] }), "allowed_token_ids", "allowed_token_ids is not None and empty!"),
        wrong(json!({ "allowed_token_ids": [999] }), "allowed_token_ids", "contains out-of-vocab token id!"),
        wrong(json!({ "logit_bias": { "999999": 1 } }), "logit_bias", "token_id(s) [999999] in logit_bias contain"),
        wrong(
            json!({ "logit_bias": { "hello": 1 } }),
            "logit_bias",
            "cannot be converted to integer token IDs: ['hello']",
        ),
        malformed(json!({ "logit_bias": { "5": "x" } }), "body.logit_bias.5"),
        unnamed(json!({ "bad_words": [""] }), "bad_words cannot contain an empty string. Got bad_words=['']"),
        wrong(json!({ "prompt_logprobs": -2 }), "prompt_logprobs", "`prompt_logprobs` must be a positive value or -1."),
        wrong(json!({ "prompt_logprobs": 21 }), "prompt_logprobs", "greater than max allowed: 20"),
        wrong(json!({ "prompt_logprobs": -1 }), "prompt_logprobs", "Requested prompt logprobs of 326"),
        wrong(json!({ "logprob_token_ids": [5] }), "logprob_token_ids", "`logprobs` must be set"),
        unnamed(json!({ "min_tokens": -1 }), "min_tokens must be greater than or equal to 0, got -1."),
        malformed(json!({ "temperature": "hot" }), "body.temperature"),
        malformed(json!({ "seed": "x" }), "body.seed"),
        malformed(json!({ "seed": 1.5 }), "body.seed"),
        malformed(json!({ "ignore_eos": 2 }), "body.ignore_eos"),
        malformed(json!({ "stream": "maybe" }), "body.stream"),
        malformed(json!({ "stream": true, "stream_options": 5 }), "body.stream_options"),
        malformed(
            json!({ "stream": true, "stream_options": { "include_usage": 5 } }),
            "body.stream_options.include_usage",
        ),
        wrong(
            json!({ "stream_options": { "include_usage": true } }),
            "stream_options",
            "Stream options can only be defined",
        ),
        wrong(
            json!({ "stream_options": { "include_usage": false } }),
            "stream_options",
            "Stream options can only be defined",
        ),
        // The words of an overflow are left out of what is not one.
        wrong(json!({ "max_tokens": 0 }), "max_completion_tokens", "must be at least 1, got 0"),
        wrong(json!({ "max_tokens": -1 }), "max_completion_tokens", "must be at least 1, got -1"),
        malformed(json!({ "max_tokens": "abc" }), "body.max_completion_tokens"),
        malformed(json!({ "max_tokens": 5.5 }), "body.max_completion_tokens"),
        unnamed(json!({ "min_tokens": 50, "max_tokens": 10 }), "min_tokens must be less than or equal to"),
        wrong(json!({ "logit_bias": { "a": 1 } }), "logit_bias", "cannot be converted"),
    ]
}

fn chat_refusals() -> Vec<Refusal> {
    let message = |message: Value| json!({ "messages": [message] });
    vec![
        unnamed(json!({ "messages": null }), "'NoneType' object is not iterable"),
        malformed(json!({ "messages": "hello" }), "body.messages"),
        malformed(json!({ "messages": [5] }), "body.messages.0.ChatCompletionDeveloperMessageParam"),
        malformed(message(json!({ "content": "hello" })), "body.messages.0.ChatCompletionDeveloperMessageParam.role"),
        malformed(
            message(json!({ "role": 5, "content": "hello" })),
            "body.messages.0.ChatCompletionDeveloperMessageParam.role",
        ),
        malformed(
            message(json!({ "role": "user", "content": null })),
            "body.messages.0.ChatCompletionDeveloperMessageParam.content",
        ),
        malformed(message(json!({ "role": "user", "content": [5] })), "body.messages.0.content"),
        malformed(message(json!({ "role": "user", "content": [{ "text": "hello" }] })), "body.messages.0.content"),
        malformed(
            message(json!({ "role": "assistant", "tool_calls": [{ "id": 1 }] })),
            "body.0.ChatCompletionMessageFunctionToolCallParam.id",
        ),
        malformed(json!({ "tools": [{ "type": "function" }] }), "body.tools.0.function"),
        malformed(json!({ "logprobs": 5 }), "body.logprobs"),
        unnamed(json!({ "messages": [] }), "Cannot apply chat template to an empty conversation."),
        unnamed(json!({ "continue_final_message": true, "add_generation_prompt": true }), "Cannot set both"),
        unnamed(json!({ "continue_final_message": true }), "are not compatible"),
        malformed(json!({ "chat_template_kwargs": [] }), "body.chat_template_kwargs"),
        wrong(
            json!({ "logprobs": true, "top_logprobs": 21 }),
            "logprobs",
            "Requested sample logprobs of 21, which is greater than max allowed: 20",
        ),
        wrong(json!({ "logprobs": true, "top_logprobs": -1 }), "logprobs", "Requested sample logprobs of 326"),
        wrong(
            json!({ "logprobs": true, "top_logprobs": -3 }),
            "top_logprobs",
            "`top_logprobs` must be a positive value or -1.",
        ),
        wrong(
            json!({ "top_logprobs": 2 }),
            "top_logprobs",
            "when using `top_logprobs`, `logprobs` must be set to true.",
        ),
    ]
}

/// Token ids that a request carries.
fn id_refusals() -> Vec<Refusal> {
    let assistant = |more: Value| {
        let mut assistant = json!({ "role": "assistant", "content": "hello" });
        assistant.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        json!({ "messages": [{ "role": "user", "content": "hello" }, assistant, { "role": "user", "content": "you" }] })
    };
    vec![
        wrong(assistant(json!({ "prompt_token_ids": [5] })), "messages[1].generation_token_ids", "is missing beside"),
        wrong(assistant(json!({ "generation_token_ids": [5] })), "messages[1].prompt_token_ids", "is missing beside"),
        wrong(
            assistant(json!({ "prompt_token_ids": ["5"], "generation_token_ids": [5] })),
            "messages[1].prompt_token_ids",
            "must be a list of token ids",
        ),
        wrong(
            assistant(json!({ "prompt_token_ids": [5], "generation_token_ids": [5.0] })),
            "messages[1].generation_token_ids",
            "must be a list of token ids",
        ),
        wrong(
            assistant(json!({ "prompt_token_ids": [true], "generation_token_ids": [5] })),
            "messages[1].prompt_token_ids",
            "must be a list of token ids",
        ),
        wrong(
            assistant(json!({ "prompt_token_ids": [-1], "generation_token_ids": [5] })),
            "messages[1].prompt_token_ids",
            "must be a list of token ids",
        ),
        wrong(
            assistant(json!({ "prompt_token_ids": "max_tokens", "generation_token_ids": [5] })),
            "messages[1].prompt_token_ids",
            "must be a list of token ids",
        ),
        wrong(
            assistant(json!({ "prompt_token_ids": [VOCAB_SIZE], "generation_token_ids": [5] })),
            "messages[1].prompt_token_ids",
            "token id 326 is out of vocabulary",
        ),
        wrong(
            assistant(json!({ "prompt_token_ids": [], "generation_token_ids": [5] })),
            "messages[1].prompt_token_ids",
            "is empty",
        ),
        wrong(json!({ "required_prefix_token_ids": [999] }), "required_prefix_token_ids", "out of vocabulary"),
        wrong(json!({ "required_prefix_token_ids": "5" }), "required_prefix_token_ids", "must be a list of token ids"),
        wrong(
            json!({ "required_prefix_token_ids": { "5": 5 } }),
            "required_prefix_token_ids",
            "must be a list of token ids",
        ),
    ]
}

fn completion_refusals() -> Vec<Refusal> {
    vec![
        wrong(json!({ "logprobs": 100 }), "logprobs", "Requested sample logprobs of 100"),
        wrong(json!({ "logprobs": -2 }), "logprobs", "`logprobs` must be a positive value or -1."),
        malformed(json!({ "echo": "maybe" }), "body.echo"),
        wrong(json!({ "suffix": "max_tokens" }), "suffix", "suffix is only supported for models with FIM"),
    ]
}

async fn check(app: &TestApp, path: &str, valid: &Value, refusals: Vec<Refusal>) {
    for refusal in refusals {
        let mut body = valid.clone();
        body.as_object_mut().unwrap().append(&mut refusal.body.as_object().unwrap().clone());
        let answer = app.post(path, body.clone()).await;
        assert_eq!(answer.status, 400, "{path} {}: {}", refusal.body, answer.text);
        let error = answer.error();
        let keys: Vec<_> = error.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["message", "type", "param", "code"]);
        assert_eq!((&error["type"], &error["code"]), (&json!(refusal.kind), &json!(400)), "{path} {}", refusal.body);
        assert_eq!(error["param"], json!(refusal.param), "{path} {}: {}", refusal.body, answer.text);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(refusal.message), "{path} {}: {message}", refusal.body);
        assert!(!sounds_like_overflow(&answer), "{path} {}: {}", refusal.body, answer.text);
    }
}

#[tokio::test]
async fn a_bad_chat_request_is_told_what_is_wrong_and_never_in_the_words_of_an_overflow() {
    let app = TestApp::new();
    let valid = json!({ "model": MODEL, "messages": [{ "role": "user", "content": "hello" }] });
    check(&app, CHAT, &valid, shared_refusals()).await;
    check(&app, CHAT, &valid, chat_refusals()).await;
    check(&app, CHAT, &valid, id_refusals()).await;
}

#[tokio::test]
async fn a_bad_completion_request_is_told_what_is_wrong_and_never_in_the_words_of_an_overflow() {
    let app = TestApp::new();
    let valid = json!({ "model": MODEL, "prompt": "hello" });
    check(&app, COMPLETIONS, &valid, shared_refusals()).await;
    check(&app, COMPLETIONS, &valid, completion_refusals()).await;
}

#[tokio::test]
async fn what_a_client_wrote_is_shown_as_it_wrote_it() {
    let app = TestApp::new();
    let function = json!([{ "type": "function", "function": { "name": "max_tokens", "parameters": {} } }]);
    let named = json!({ "type": "function", "function": { "name": "max_tokens" } });
    let flat = json!([{ "type": "function", "name": "f", "parameters": {} }]);
    for (path, fields, shown) in [
        (CHAT, json!({ "logit_bias": { "max_tokens": 1 } }), "integer token IDs: ['max_tokens']"),
        (CHAT, json!({ "tools": function, "tool_choice": named }), "tool_choice=function \"max_tokens\" requires"),
        (CHAT, json!({ "top_k": "the context length" }), "'input': 'the context length'"),
        (
            "/v1/responses",
            json!({ "tools": flat, "tool_choice": "truncate_prompt_tokens" }),
            "Invalid value for `tool_choice`: truncate_prompt_tokens!",
        ),
    ] {
        let mut body = json!({ "messages": [{ "role": "user", "content": "hello" }], "input": "hello" });
        body.as_object_mut().unwrap().append(&mut fields.as_object().unwrap().clone());
        let refused = app.post(path, body).await;
        let message = refused.error()["message"].as_str().unwrap().to_owned();
        assert!(refused.status == 400 && message.contains(shown), "{path} {fields}: {message}");
    }
}

#[tokio::test]
async fn too_many_stop_strings_are_too_many() {
    let body = json!({ "prompt": "hello", "stop": ["a", "b", "c", "d", "e"] });
    let refused = TestApp::new().post(COMPLETIONS, body).await;
    assert_eq!((refused.status, &refused.error()["type"]), (400, &json!("Bad Request")));
    let message = refused.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("List should have at most 4 items after validation, not 5"), "{message}");
}

#[tokio::test]
async fn only_json_is_read_and_a_charset_does_not_matter() {
    let app = TestApp::new().says("you");
    let body = json!({ "prompt": "hello" }).to_string();
    for media_type in ["application/json", "application/json; charset=utf-8", "Application/JSON"] {
        let mut request = posted(COMPLETIONS, body.clone());
        request.headers_mut().insert(header::CONTENT_TYPE, media_type.parse().unwrap());
        assert_eq!(app.request(request).await.status, 200, "{media_type}");
    }
    for media_type in [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("application/jsonl")] {
        let mut request = posted(COMPLETIONS, body.clone());
        request.headers_mut().remove(header::CONTENT_TYPE);
        if let Some(media_type) = media_type {
            request.headers_mut().insert(header::CONTENT_TYPE, media_type.parse().unwrap());
        }
        let refused = app.request(request).await;
        let message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed";
        assert_eq!((refused.status, &refused.error()["message"]), (400, &json!(message)), "{media_type:?}");
        assert_eq!((&refused.error()["type"], &refused.error()["param"]), (&json!("Bad Request"), &Value::Null));
    }
}

#[tokio::test]
async fn what_is_not_json_is_refused_without_a_panic() {
    let app = TestApp::new();
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let mut bodies: Vec<Vec<u8>> = [
        "",
        " ",
        "null",
        "[]",
        "[1, 2]",
        "5",
        "\"hello\"",
        "{",
        "{\"prompt\"",
        "{\"prompt\": \"hello\"} x",
        "{\"prompt\": \"hello\"}{}",
        "{'prompt': 'hello'}",
        "{\"prompt\": \"hello\",}",
        "{\"prompt\": nan}",
        "{\"prompt\": \"\\ud800\"}",
        "{\"messages\": [], \"messages\": []}",
        "\u{feff}{}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    bodies.push(b"{\"prompt\": \"\xff\xfe\"}".to_vec());
    bodies.push(vec![0; 64]);
    for depth in [100, 1_000, 100_000] {
        bodies.push(deep(depth).into_bytes());
        for field in
            ["messages", "prompt", "unknown", "tools", "chat_template_kwargs", "required_prefix_token_ids", "stop"]
        {
            bodies.push(format!("{{\"{field}\": {}}}", deep(depth)).into_bytes());
        }
    }
    for path in [CHAT, COMPLETIONS, "/tokenize", "/detokenize"] {
        for body in &bodies {
            let refused = app.request(posted(path, body.clone())).await;
            let start = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
            assert_eq!(refused.status, 400, "{path} {start}: {}", refused.text);
            let answer = refused.json();
            let text = &answer.get("error").map_or(&answer["detail"], |error| &error["message"]);
            assert!(text.is_string(), "{path} {start}: {}", refused.text);
            assert!(!sounds_like_overflow(&refused), "{path} {start}: {}", refused.text);
        }
    }
}

#[tokio::test]
async fn malformed_json_names_its_place() {
    let refused = TestApp::new().request(posted("/tokenize", "{oops")).await;
    assert_eq!(refused.error()["param"], "body.1");
    assert!(refused.error()["message"].as_str().unwrap().contains("JSON decode error"));
}

#[tokio::test]
async fn numbers_beyond_any_type_are_refused_or_clamped() {
    let app = TestApp::new().max_model_len(64);
    for (field, value, status) in [
        ("max_tokens", json!(64), 200),
        ("max_tokens", json!(i64::MAX), 400),
        ("max_tokens", json!(u64::MAX), 400),
        ("max_tokens", json!(i64::MIN), 400),
        ("min_tokens", json!(i64::MAX), 400),
        ("n", json!(i64::MAX), 400),
        ("seed", json!(i64::MAX), 200),
        ("seed", json!(i64::MIN), 200),
        ("seed", json!(u64::MAX), 400),
        ("top_k", json!(i64::MAX), 200),
        ("logprobs", json!(i64::MAX), 400),
        ("prompt_logprobs", json!(i64::MAX), 400),
        ("temperature", json!(f64::MAX), 400),
        ("temperature", json!(f64::MIN_POSITIVE), 200),
        ("top_p", json!(f64::MIN_POSITIVE), 200),
        ("repetition_penalty", json!(f64::MIN_POSITIVE), 400),
        ("logit_bias", json!({ "5": f64::MAX }), 200),
        ("stop_token_ids", json!([i64::MAX]), 400),
    ] {
        let answer = app.post(COMPLETIONS, json!({ "prompt": "hello", field: value })).await;
        assert_eq!(answer.status, status, "{field} {value}: {}", answer.text);
    }
    for number in ["123456789012345678901234567890", "-1e999", "1e400"] {
        let body = format!("{{\"prompt\": \"hello\", \"seed\": {number}, \"temperature\": {number}}}");
        assert_eq!(app.request(posted(COMPLETIONS, body)).await.status, 400, "{number}");
    }
}

#[tokio::test]
async fn a_full_queue_is_busy_and_says_when_to_come_again() {
    let app = TestApp::new().gate(&Gate::shut()).seats(1).max_waiting(1);
    let asked = json!({ "prompt": "hello", "messages": [{ "role": "user", "content": "hello" }], "stream": true });
    let _engaged = [app.open(COMPLETIONS, asked.clone()).await, app.open(COMPLETIONS, asked.clone()).await];
    for (path, stream) in [(COMPLETIONS, false), (CHAT, false), (COMPLETIONS, true), (CHAT, true)] {
        let mut body = asked.clone();
        body["stream"] = json!(stream);
        let answer = app.post(path, body).await;
        assert_eq!(answer.status, 503, "{path}: {}", answer.text);
        assert_eq!(answer.headers[header::RETRY_AFTER], "1", "{path}");
        assert_eq!(answer.error()["type"], "Service Unavailable", "{path}");
        assert_eq!(answer.headers["x-retry"], "anywhere; done=nothing", "{path}");
    }
}

#[tokio::test]
async fn head_and_options_do_not_reach_handlers_of_other_methods() {
    let app = TestApp::new();
    for method in [Method::HEAD, Method::OPTIONS, Method::PATCH] {
        let request = Request::builder().method(method.clone()).uri(CHAT).body(Body::empty()).unwrap();
        assert_eq!(app.request(request).await.status, 405, "{method}");
    }
}

#[tokio::test]
async fn a_fault_in_the_middle_of_a_stream_is_an_event_of_its_dialect_and_not_an_end() {
    let user = json!([{ "role": "user", "content": "hello" }]);
    let cases = [
        ("/v1/chat/completions", json!({ "messages": user }), "data: {\"error\":", "\"finish_reason\":\"stop\""),
        ("/v1/completions", json!({ "prompt": "hello" }), "data: {\"error\":", "\"finish_reason\":\"stop\""),
        (
            "/v1/messages",
            json!({ "model": "tiny", "max_tokens": 9, "messages": user }),
            "event: error\ndata: {\"type\":\"error\",",
            "message_stop",
        ),
        ("/v1/responses", json!({ "input": user }), "event: error\ndata: {\"type\":\"error\",", "response.completed"),
    ];
    for (path, mut body, error, end) in cases {
        let app = TestApp::new().says("hello there").gate(&Gate::failing_after(2));
        body["stream"] = json!(true);
        let answer = app.post(path, body.clone()).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.text.contains(error), "{path}: {}", answer.text);
        assert!(!answer.text.contains(end), "{path}: {}", answer.text);
        body["stream"] = json!(false);
        let app = TestApp::new().says("hello there").gate(&Gate::failing_after(2));
        assert_eq!(app.post(path, body).await.status, 500, "{path}");
    }
}

/// TRL asks for a hundred.
#[tokio::test]
async fn too_many_log_probs_are_refused_with_the_flag_that_allows_them() {
    let app = TestApp::new();
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let of_sample =
        "Requested sample logprobs of 100, which is greater than max allowed: 20; --max-logprobs sets the limit";
    let of_prompt =
        "Requested prompt logprobs of 100, which is greater than max allowed: 20; --max-logprobs sets the limit";
    for (path, body, param, sentence) in [
        ("/v1/completions", json!({ "prompt": "a", "logprobs": 100 }), "logprobs", of_sample),
        ("/v1/completions", json!({ "prompt": "a", "prompt_logprobs": 100 }), "prompt_logprobs", of_prompt),
        (
            "/v1/chat/completions",
            json!({ "messages": messages, "logprobs": true, "top_logprobs": 100 }),
            "logprobs",
            of_sample,
        ),
        (
            "/v1/responses",
            json!({ "input": "a", "include": ["message.output_text.logprobs"], "top_logprobs": 100 }),
            "top_logprobs",
            of_sample,
        ),
        (
            "/inference/v1/generate",
            json!({ "token_ids": [5], "sampling_params": { "logprobs": 100 } }),
            "logprobs",
            of_sample,
        ),
    ] {
        let answer = app.post(path, body).await;
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(param)), "{path}: {}", answer.text);
        let message = answer.error()["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(sentence), "{path}: {message}");
    }
    let allowing = app.policy(|policy| policy.max_logprobs = Some(100)).says("hello");
    let body = json!({ "prompt": "a", "logprobs": 100, "return_tokens_as_token_ids": true });
    let answer = allowing.post("/v1/completions", body).await.ok();
    assert!(answer["choices"][0]["logprobs"]["top_logprobs"][0].as_object().unwrap().len() >= 100);
}
