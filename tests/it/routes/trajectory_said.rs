//! What clients said is captured in their own JSON, each thing once.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{Request, header},
};
use serde_json::{Value, json};
use tito::{
    store::MemoryStore,
    trajectory::{CapturePolicy, Trajectories},
    turn::Capture,
};

use crate::it::app::{MODEL, TestApp};

fn capturing(texts: bool) -> TestApp {
    let policy = CapturePolicy { bytes: 1 << 26, ttl: None, texts, images: true };
    let store = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX));
    let trajectories = Arc::new(Trajectories::open(store, policy).unwrap());
    let capture = Capture { trajectories, model: MODEL.into(), process: "test".into() };
    TestApp::new().says("Good day").max_model_len(100_000).captures(capture)
}

/// Sends a body as it is written.
async fn sent(app: &TestApp, path: &str, body: &str) -> Value {
    let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    app.request(request.body(Body::from(body.to_owned())).unwrap()).await.ok()
}

/// The turns of the only trajectory, and the text of the answer that shows them.
async fn turns(app: &TestApp) -> (Vec<Value>, String) {
    let list = app.get("/v1/trajectories").await.ok();
    let [trajectory] = &list["data"].as_array().unwrap()[..] else { panic!("one trajectory: {list}") };
    let answer = app.get(&format!("/v1/trajectories/{}", trajectory["id"].as_str().unwrap())).await;
    (answer.ok()["turns"].as_array().unwrap().clone(), answer.text)
}

#[tokio::test]
async fn messages_of_a_chat_are_kept_to_the_letter_and_once() {
    let app = capturing(true);
    let user = r#"{"content":  "H\u00e9llo", "role":"user", "extra": 1.50}"#;
    let tools = r#"[ {"type":"function","function":{"name":"f","parameters":{}}} ]"#;
    let body = format!(
        r#"{{"messages": [{user}], "tools": {tools}, "tool_choice": "none", "max_tokens": 8, "session_id": "s"}}"#
    );
    sent(&app, "/v1/chat/completions", &body).await;
    let (first, text) = turns(&app).await;
    assert!(text.contains(user) && text.contains(tools), "{text}");
    let said = &first[0]["said"];
    assert_eq!((&said["dialect"], &said["items_before"]), (&json!("chat_completions"), &json!(0)));
    // Ids and log-probs are captured as such: an item that carries them is kept without.
    let head = &first[0];
    let (prompt, ids, logprobs) = (&head["added_token_ids"], &head["sampled_token_ids"], &head["logprobs"]);
    let answer = format!(
        r#"{{"role": "assistant", "content": "Good day", "prompt_token_ids": {prompt}, "generation_token_ids": {ids}, "generation_log_probs": {logprobs}}}"#
    );
    let next = r#"{"role":"user","content":[{"type":"text","text":"On"}]}"#;
    let body = format!(r#"{{"messages": [{user}, {answer}, {next}], "max_tokens": 8, "session_id": "s"}}"#);
    sent(&app, "/v1/chat/completions", &body).await;
    let (both, text) = turns(&app).await;
    let said = &both[1]["said"];
    assert_eq!((&said["items_before"], &both[1]["parent_id"]), (&json!(1), &both[0]["id"]));
    assert_eq!(text.matches(user).count(), 1, "the first message is kept once");
    let items = json!([{ "role": "assistant", "content": "Good day" }, { "role": "user", "content": [{ "type": "text", "text": "On" }] }]);
    assert_eq!((&said["items"], &said["tools"]), (&items, &json!(false)));
}

#[tokio::test]
async fn blocks_and_items_are_kept_as_their_dialects_have_them() {
    let app = capturing(true);
    let messages = json!([{ "role": "user", "content": [{ "type": "text", "text": "Hi", "cache_control": { "type": "ephemeral" } }] }]);
    let body = json!({ "model": MODEL, "system": "Be kind", "messages": messages, "max_tokens": 8, "metadata": { "user_id": "u" } });
    app.post("/v1/messages", body).await.ok();
    let (turn, _) = turns(&app).await;
    let said = &turn[0]["said"];
    assert_eq!((&said["dialect"], &said["system"], &said["items"]), (&json!("messages"), &json!("Be kind"), &messages));

    let app = capturing(true);
    let first = app.post("/v1/responses", json!({ "input": "one", "instructions": "Be kind" })).await.ok();
    let input = json!([{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "two" }] }]);
    let body = json!({ "input": input, "previous_response_id": first["id"] });
    app.post("/v1/responses", body).await.ok();
    let (both, _) = turns(&app).await;
    let [one, two] = [&both[0]["said"], &both[1]["said"]];
    assert_eq!(
        (&one["dialect"], &one["items"], &one["system"]),
        (&json!("responses"), &json!(["one"]), &json!("Be kind"))
    );
    // The earlier response is named and not sent again, and neither are its instructions.
    assert_eq!((&two["items"], &two["items_before"], &two["system"]), (&input, &json!(0), &json!(false)));
}

#[tokio::test]
async fn a_history_that_is_sent_again_each_time_is_kept_once() {
    let app = capturing(true);
    let mut messages = Vec::new();
    for turn in 0..30 {
        let lines: Vec<String> = (0..20).map(|line| format!("In turn {turn} it was {}.", line * turn)).collect();
        messages.push(json!({ "role": "user", "content": lines.join(" ") }));
        let body = json!({ "messages": messages, "max_tokens": 8, "session_id": "s" });
        app.post("/v1/chat/completions", body).await.ok();
        messages.push(json!({ "role": "assistant", "content": "Good day" }));
    }
    let (turns, _) = turns(&app).await;
    let kept: Vec<Value> = turns.iter().flat_map(|turn| turn["said"]["items"].as_array().unwrap().clone()).collect();
    messages.pop();
    assert_eq!(kept, messages);
}

#[tokio::test]
async fn without_texts_and_of_ids_nothing_is_said() {
    let app = capturing(false);
    app.post("/v1/chat/completions", json!({ "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 2 }))
        .await
        .ok();
    assert_eq!(turns(&app).await.0[0]["said"], Value::Null);
    let app = capturing(true);
    app.post("/v1/completions", json!({ "prompt": [5, 6, 7], "max_tokens": 2 })).await.ok();
    assert_eq!(turns(&app).await.0[0]["said"], Value::Null);
    let app = capturing(true);
    app.post("/invocations", json!({ "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 2 })).await.ok();
    assert_eq!(turns(&app).await.0[0]["said"]["items"], json!([{ "role": "user", "content": "Hi" }]));
}

#[tokio::test]
async fn each_conversation_of_a_batch_keeps_its_own_messages() {
    let app = capturing(true);
    let (one, two) = (r#"{"role":"user",  "content":"One"}"#, r#"{"role":"user","content":  "Two"}"#);
    let body = format!(r#"{{"messages": [[{one}], [{two}, {one}]], "max_tokens": 4}}"#);
    sent(&app, "/v1/chat/completions/batch", &body).await;
    let list = app.get("/v1/trajectories").await.ok();
    let mut counts = Vec::new();
    for trajectory in list["data"].as_array().unwrap() {
        let answer = app.get(&format!("/v1/trajectories/{}", trajectory["id"].as_str().unwrap())).await;
        assert_eq!(answer.ok()["turns"][0]["said"]["dialect"], "chat_completions");
        counts.push([one, two].map(|message| answer.text.matches(message).count()));
    }
    counts.sort_unstable();
    assert_eq!(counts, [[1, 0], [1, 1]]);
}

#[tokio::test]
async fn numbers_of_tools_and_of_sampling_are_shown_as_they_were_sent() {
    let app = capturing(true);
    let tools = r#"[{"type":"function","function":{"name":"f","parameters":{"maximum":12345678901234567890123}}}]"#;
    let body = format!(
        r#"{{"messages": [{{"role": "user", "content": "Hi"}}], "tools": {tools}, "tool_choice": "none", "max_tokens": 8,
        "logit_bias": {{"7": 0.1}}}}"#
    );
    sent(&app, "/v1/chat/completions", &body).await;
    let (_, text) = turns(&app).await;
    // Once as the client said it, and once as the template is given it.
    assert_eq!(text.matches("12345678901234567890123").count(), 2, "{text}");
    assert!(text.contains("[[7,0.1]]"), "{text}");
}
