//! `POST /v1/chat/completions/batch`: several conversations, one choice each.

use serde_json::{Value, json};

use crate::it::app::{Answer, TestApp, shape};

const PATH: &str = "/v1/chat/completions/batch";
const CHAT: &str = "/v1/chat/completions";

fn conversation(text: &str) -> Value {
    json!([{ "role": "user", "content": text }])
}

#[tokio::test]
async fn each_conversation_has_the_choice_that_it_has_alone() {
    let app = TestApp::new();
    let more = json!({ "seed": 5, "max_tokens": 7, "logprobs": true, "return_token_ids": true, "request_id": "b" });
    let texts = ["hello", "world you", "the weather"];
    let mut body = more.clone();
    body["messages"] = texts.iter().map(|text| conversation(text)).collect();
    let batch = app.post(PATH, body).await.ok();
    assert_eq!((&batch["id"], &batch["prompt_token_ids"]), (&json!("chatcmpl-b"), &Value::Null));
    let choices = batch["choices"].as_array().unwrap();
    assert_eq!(choices.len(), texts.len());
    let mut usage = [0, 0];
    for (index, text) in texts.iter().enumerate() {
        let mut body = more.clone();
        body["messages"] = conversation(text);
        let mut alone = app.post(CHAT, body).await.ok();
        usage[0] += alone["usage"]["prompt_tokens"].as_u64().unwrap();
        usage[1] += alone["usage"]["completion_tokens"].as_u64().unwrap();
        alone["choices"][0]["index"] = json!(index);
        assert_eq!(choices[index], alone["choices"][0], "{text}");
        if index == 0 {
            assert_eq!(shape(&batch), shape(&alone));
        }
    }
    assert_eq!(json!(usage), json!([batch["usage"]["prompt_tokens"], batch["usage"]["completion_tokens"]]));
}

#[tokio::test]
async fn a_prompt_that_is_cut_is_told_beside_its_message() {
    let app = TestApp::new().says("you");
    let conversations = json!([conversation("hello world you the weather"), conversation("a")]);
    let short = app.post(CHAT, json!({ "messages": conversations[1] })).await.ok();
    let short = short["usage"]["prompt_tokens"].as_u64().unwrap();
    for (kept, is_cut) in [(short, [true, false]), (90, [false, false])] {
        let body = json!({ "messages": conversations, "truncate_prompt_tokens": kept, "return_token_ids": true });
        let batch = app.post(PATH, body).await.ok();
        for (index, is_cut) in is_cut.into_iter().enumerate() {
            let choice = &batch["choices"][index];
            let body =
                json!({ "messages": conversations[index], "truncate_prompt_tokens": kept, "return_token_ids": true });
            let alone = app.post(CHAT, body).await.ok();
            assert_eq!(choice["message"], alone["choices"][0]["message"]);
            let (shown, other) = (&choice["prompt_token_ids"], &choice["message"]["prompt_token_ids"]);
            let (shown, other) = if is_cut { (shown, other) } else { (other, shown) };
            assert_eq!((shown, other), (&alone["prompt_token_ids"], &Value::Null), "{kept} {index}");
        }
    }
    let body = json!({ "messages": conversations, "truncate_prompt_tokens": 5 });
    assert_eq!(app.post(PATH, body).await.ok()["choices"][0].get("prompt_token_ids"), None);
}

#[tokio::test]
async fn ids_on_messages_are_continued() {
    let app = TestApp::new().says("you");
    let first = app.post(CHAT, json!({ "messages": conversation("hello"), "return_token_ids": true })).await.ok();
    let mut messages = conversation("hello").as_array().unwrap().clone();
    messages.push(first["choices"][0]["message"].clone());
    messages.push(json!({ "role": "user", "content": "world" }));
    let body = json!({ "messages": [messages, conversation("world")], "return_token_ids": true });
    let batch = app.post(PATH, body).await.ok();
    let seen = batch["choices"][0]["message"]["prompt_token_ids"].as_array().unwrap();
    let known: Vec<Value> = ["prompt_token_ids", "generation_token_ids"]
        .iter()
        .flat_map(|field| first["choices"][0]["message"][field].as_array().unwrap().clone())
        .collect();
    assert!(seen.starts_with(&known));
}

#[tokio::test]
async fn the_worst_of_what_became_of_ids_is_told() {
    let app = TestApp::new().says("you");
    let first = app.post(CHAT, json!({ "messages": conversation("hello"), "return_token_ids": true })).await.ok();
    let mut messages = conversation("hello").as_array().unwrap().clone();
    messages.push(first["choices"][0]["message"].clone());
    messages.push(json!({ "role": "user", "content": "world" }));
    let mut edited = messages.clone();
    edited[1]["content"] = json!("me");
    let alone = app.post(CHAT, json!({ "messages": edited })).await;
    let header = |answer: &Answer| answer.headers["x-token-continuity"].to_str().unwrap().to_owned();
    assert!(header(&alone).contains("message_edited"), "{}", header(&alone));
    for conversations in [json!([edited, messages]), json!([messages, edited, messages])] {
        for asks in [false, true] {
            let body = json!({ "messages": conversations, "return_token_continuity": asks });
            let batch = app.post(PATH, body).await;
            assert_eq!(header(&batch), header(&alone));
            let warnings = &batch.ok()["token_continuity"]["warnings"];
            assert_eq!(*warnings, if asks { json!(["message_edited"]) } else { Value::Null });
        }
    }
}

#[tokio::test]
async fn what_cannot_be_batched_is_refused() {
    let app = TestApp::new();
    let with = |field: &str, value: Value| {
        let mut body = json!({ "messages": [conversation("hello")] });
        body[field] = value;
        body
    };
    let tool = json!([{ "type": "function", "function": { "name": "f" } }]);
    let cases = [
        (with("n", json!(2)), "n", "Please set `n` to 1. (parameter=n, value=2)"),
        (with("use_beam_search", json!(true)), "use_beam_search", "do not support beam search"),
        (with("stream", json!(true)), "stream", "do not support streaming"),
        (with("tools", tool), "tools", "do not support `tools`"),
        (
            with("kv_transfer_params", json!({ "prompt_token_ids": [1] })),
            "kv_transfer_params.prompt_token_ids",
            "one pre-tokenized prompt cannot serve several conversations",
        ),
        (with("prompt_token_ids", json!([1])), "prompt_token_ids", "do not support `prompt_token_ids`"),
        (with("prompt_logprobs", json!(1)), "prompt_logprobs", "do not support `prompt_logprobs`"),
        (
            with("vllm_xargs", json!({ "session_id": "s" })),
            "vllm_xargs.session_id",
            "do not support `vllm_xargs.session_id`",
        ),
        (
            json!({ "messages": [conversation("hello")], "echo": true, "logprobs": true }),
            "echo",
            "do not support `echo`",
        ),
        (with("echo", json!(true)), "echo", "do not support `echo`. "),
        (with("return_prompt_text", json!(true)), "return_prompt_text", "do not support `return_prompt_text`"),
        (with("messages", json!([])), "body.messages", "List should have at least 1 item after validation, not 0"),
        (with("messages", json!([[]])), "body.messages.0", "List should have at least 1 item after validation, not 0"),
        (with("messages", json!({})), "body.messages", "Input should be a valid list"),
        (json!({}), "body.messages", "Field required"),
    ];
    for (body, param, words) in cases {
        let answer = app.post(PATH, body.clone()).await;
        assert_eq!((answer.status, answer.error()["param"].clone()), (400, json!(param)), "{body}");
        assert!(answer.error()["message"].as_str().unwrap().contains(words), "{}", answer.text);
    }
}

#[tokio::test]
async fn known_ids_that_are_too_many_are_counted_as_in_a_chat() {
    let app = TestApp::new().max_model_len(8);
    let mut answer = conversation("hello").as_array().unwrap().clone();
    answer.push(json!({
        "role": "assistant", "content": "you", "prompt_token_ids": vec![5; 30], "generation_token_ids": [2]
    }));
    answer.push(json!({ "role": "user", "content": "world" }));
    let render = "/v1/chat/completions/render";
    for (path, messages) in [(CHAT, json!(answer)), (render, json!(answer)), (PATH, json!([answer]))] {
        let refused = app.post(path, json!({ "messages": messages })).await;
        let message = refused.error()["message"].as_str().unwrap().to_owned();
        assert_eq!(refused.status, 400, "{path}: {message}");
        assert!(message.contains("your prompt contains 43 input tokens"), "{path}: {message}");
    }
}
