//! `POST /tokenize` and `/detokenize`: the ids that a chat or a completion starts from, by the same road.

use expect_test::expect;
use serde_json::{Value, json};
use tito::prompt::OnUnprovable;

use crate::it::app::{IM_END, MODEL, TestApp};

fn tool() -> Value {
    json!({ "type": "function", "function": { "name": "f", "description": "d", "parameters": { "b": 1, "a": 1.50 } } })
}

fn call() -> Value {
    json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{\"b\": 1}" } })
}

/// Bodies that both endpoints understand.
fn conversations(app: &TestApp) -> Vec<Value> {
    let user = json!({ "role": "user", "content": "hello" });
    let next = json!({ "role": "user", "content": "you" });
    let prompt = app.ids("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
    let generation = [app.ids("hel"), app.ids("lo"), vec![IM_END]].concat();
    let known = [prompt.clone(), generation.clone()].concat();
    let sampled = json!({ "role": "assistant", "content": "hello", "prompt_token_ids": prompt,
                          "generation_token_ids": generation, "generation_log_probs": [0.0, 0.0, 0.0] });
    let said = json!({ "role": "assistant", "content": "hello" });
    vec![
        json!({ "messages": [user] }),
        json!({ "messages": [{ "role": "system", "content": "the" }, user] }),
        json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "hello" }, { "type": "text", "text": " é😀" }] }] }),
        json!({ "messages": [user, said, next] }),
        json!({ "messages": [user], "add_generation_prompt": false }),
        json!({ "messages": [user, said], "add_generation_prompt": false, "continue_final_message": true }),
        json!({ "messages": [user], "tools": [tool()], "tool_choice": "none" }),
        json!({ "messages": [user, { "role": "assistant", "tool_calls": [call()] }, { "role": "tool", "content": "1", "tool_call_id": "c" }],
                "tools": [tool()], "tool_choice": "none" }),
        json!({ "messages": [user], "chat_template_kwargs": { "x": 1 } }),
        json!({ "messages": [user], "add_special_tokens": true }),
        json!({ "messages": [user, sampled, next] }),
        json!({ "messages": [user, said, next], "required_prefix_token_ids": known }),
        json!({ "messages": [user, sampled, next], "required_prefix_token_ids": [] }),
        json!({ "messages": [user, sampled, { "role": "tool", "content": "1" }], "tools": null }),
        json!({ "messages": [user, { "role": "assistant", "content": "x", "reasoning_content": "y" }, next] }),
    ]
}

#[tokio::test]
async fn a_conversation_has_the_ids_that_a_chat_starts_from() {
    let app = TestApp::new();
    let bodies = conversations(&app);
    for mut body in bodies {
        let tokenized = app.post("/tokenize", body.clone()).await;
        body["return_token_ids"] = json!(true);
        let chat = app.post("/v1/chat/completions", body.clone()).await.ok();
        let tokenized = tokenized.ok();
        assert_eq!(tokenized["tokens"], chat["prompt_token_ids"], "{body}");
        assert_eq!(tokenized["count"], chat["usage"]["prompt_tokens"], "{body}");
        let again = app.post("/v1/tokenize", body.clone()).await.ok();
        assert_eq!(again["tokens"], tokenized["tokens"], "{body}");
    }
}

#[tokio::test]
async fn known_ids_stand_at_the_start_and_a_re_encoded_conversation_would_differ() {
    let app = TestApp::new();
    let bodies = conversations(&app);
    let [bundled, required, ignored] = [10, 11, 12].map(|index| bodies[index].clone());
    let mut tokens = Vec::new();
    for body in [&bundled, &required, &ignored] {
        tokens.push(app.post("/tokenize", body.clone()).await.ok()["tokens"].clone());
    }
    assert_eq!(tokens[0], tokens[1]);
    let known: Vec<u32> = serde_json::from_value(required["required_prefix_token_ids"].clone()).unwrap();
    let ids: Vec<u32> = serde_json::from_value(tokens[0].clone()).unwrap();
    assert_eq!(ids[..known.len()], known);
    // An empty prefix says that nothing is known, whatever the messages carry.
    assert_ne!(tokens[0], tokens[2]);
    let [spliced, encoded] = [0, 2].map(|index| serde_json::from_value::<Vec<u32>>(tokens[index].clone()).unwrap());
    let text = |ids: &[u32]| app.tokenizer().decode(ids, false).unwrap();
    assert_eq!(text(&spliced), text(&encoded));
}

#[tokio::test]
async fn ids_that_cannot_be_proven_to_fit_are_refused_unless_the_server_is_told_to_forget_them() {
    let last_only = || TestApp::new().chat_template("{{ messages[-1].content }}");
    let body = conversations(&last_only())[10].clone();
    for path in ["/tokenize", "/v1/chat/completions"] {
        let refused = last_only().post(path, body.clone()).await;
        assert_eq!((refused.status, &refused.error()["type"]), (400, &json!("BadRequestError")), "{}", refused.text);
    }
    let forgetful = last_only().on_unprovable(OnUnprovable::Retokenize);
    assert_eq!(forgetful.post("/tokenize", body).await.ok()["tokens"], json!(forgetful.ids("you")));
}

#[tokio::test]
async fn a_text_has_the_ids_that_a_completion_starts_from() {
    let app = TestApp::new();
    for text in ["hello world", "", " ", "é😀\n\n", "<|im_start|>user", "123456"] {
        let tokenized = app.post("/tokenize", json!({ "model": MODEL, "prompt": text })).await.ok();
        assert_eq!(tokenized["tokens"], json!(app.ids(text)), "{text:?}");
        assert_eq!(tokenized["count"], app.ids(text).len());
        if !text.is_empty() {
            let completion = json!({ "prompt": text, "return_token_ids": true });
            let completion = app.post("/v1/completions", completion).await.ok();
            assert_eq!(completion["choices"][0]["prompt_token_ids"], tokenized["tokens"], "{text:?}");
        }
    }
}

#[tokio::test]
async fn the_answer_has_vllms_shape_and_the_vocabularys_spellings_on_request() {
    let app = TestApp::new();
    let answer = app.post("/tokenize", json!({ "prompt": "hello world<think>é", "return_token_strs": true })).await;
    expect![[
        r#"{"count":4,"max_model_len":4096,"tokens":[264,276,324,318],"token_strs":["hello","Ġworld","<think>","Ã©"]}"#
    ]]
    .assert_eq(&answer.text);
    let plain = app.post("/tokenize", json!({ "prompt": "hello" })).await;
    expect![[r#"{"count":1,"max_model_len":4096,"tokens":[264],"token_strs":null}"#]].assert_eq(&plain.text);
}

#[tokio::test]
async fn with_both_the_conversation_counts_and_with_neither_the_request_is_malformed() {
    let app = TestApp::new();
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let both = app.post("/tokenize", json!({ "prompt": "you", "messages": messages })).await.ok();
    assert_eq!(both, app.post("/tokenize", json!({ "messages": messages })).await.ok());
    let neither = app.post("/tokenize", json!({ "model": MODEL })).await;
    assert_eq!((neither.status, &neither.error()["type"]), (400, &json!("Bad Request")));
    assert_eq!(neither.error()["param"], "body.prompt");
    let empty = app.post("/tokenize", json!({ "messages": [] })).await;
    assert_eq!(empty.status, 400);
    let message = "Cannot apply chat template to an empty conversation. Provide at least one message.";
    assert_eq!(empty.error()["message"], message);
}

#[tokio::test]
async fn a_prompt_longer_than_the_context_is_still_tokenized() {
    let app = TestApp::new().max_model_len(4);
    let answer = app.post("/tokenize", json!({ "messages": [{ "role": "user", "content": "hello" }] })).await.ok();
    assert_eq!((&answer["count"], &answer["max_model_len"]), (&json!(9), &json!(4)));
}

#[tokio::test]
async fn ids_become_text_special_tokens_included_under_both_paths() {
    let app = TestApp::new();
    let cases = [
        (app.ids("<|im_start|>user\nhello<|im_end|>\n"), "<|im_start|>user\nhello<|im_end|>\n"),
        (vec![], ""),
        ([app.ids("hel"), app.ids("lo")].concat(), "hello"),
        (app.ids("é")[..1].to_vec(), "é"),
        // The first byte of a character alone.
        (app.ids("😀")[..1].to_vec(), "\u{fffd}"),
    ];
    for (ids, text) in cases {
        for path in ["/detokenize", "/v1/detokenize"] {
            let answer = app.post(path, json!({ "model": MODEL, "tokens": ids })).await;
            assert_eq!(answer.ok(), json!({ "prompt": text }), "{ids:?}");
        }
    }
}

#[tokio::test]
async fn ids_that_are_none_do_not_become_text() {
    let app = TestApp::new();
    let malformed = [
        json!({}),
        json!({ "tokens": null }),
        json!({ "tokens": [-1] }),
        json!({ "tokens": ["x"] }),
        json!({ "tokens": [1.5] }),
    ];
    for body in malformed {
        let refused = app.post("/detokenize", body.clone()).await;
        assert_eq!((refused.status, &refused.error()["type"]), (400, &json!("Bad Request")), "{body}");
    }
    let unknown = app.post("/detokenize", json!({ "tokens": [5, 326] })).await;
    assert_eq!((unknown.status, &unknown.error()["type"]), (400, &json!("BadRequestError")), "{}", unknown.text);
    assert!(unknown.error()["message"].as_str().unwrap().contains("326"));
}

#[tokio::test]
async fn an_unknown_model_is_not_found() {
    let app = TestApp::new();
    for (path, field) in [("/tokenize", "prompt"), ("/detokenize", "tokens")] {
        let value = if field == "prompt" { json!("hello") } else { json!([5]) };
        let answer = app.post(path, json!({ "model": "nope", field: value })).await;
        assert_eq!((answer.status, &answer.error()["param"]), (404, &json!("model")), "{path}");
    }
}

#[tokio::test]
async fn a_thought_is_in_the_prompt_by_whatever_name_it_comes() {
    let source =
        "{{ bos_token }}{% for message in messages %}[{{ message.reasoning }}|{{ message.content }}]{% endfor %}";
    let app = TestApp::new().chat_template(source);
    let ask = async |path: &str, list: &str, fields: Value| {
        let mut said = json!({ "role": "assistant", "content": "x" });
        said.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let user = json!({ "role": "user", "content": "a" });
        let mut body = json!({ "max_tokens": 1 });
        body[list] = json!([user, said, user]);
        app.post(path, body).await.ok()
    };
    let thinking = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
    let detail = json!({ "type": "reasoning.text", "text": "hm" });
    let known = ask("/tokenize", "messages", json!({ "reasoning": "hm" })).await["tokens"].clone();
    let silent = ask("/tokenize", "messages", json!({})).await["tokens"].clone();
    assert_ne!(known, silent);
    for fields in [
        json!({ "reasoning_content": "hm" }),
        json!({ "thinking": "hm" }),
        json!({ "thinking_blocks": [thinking] }),
        json!({ "reasoning_details": [detail] }),
        json!({ "reasoning": "hm", "reasoning_details": [{ "type": "reasoning.text", "text": "other" }] }),
        json!({ "reasoning_content": "hm", "thinking_blocks": [thinking], "reasoning_details": [detail] }),
    ] {
        assert_eq!(ask("/tokenize", "messages", fields.clone()).await["tokens"], known, "{fields}");
        let chat = ask("/v1/chat/completions", "messages", fields.clone()).await;
        assert_eq!(chat["usage"]["prompt_tokens"], json!(known.as_array().unwrap().len()), "{fields}");
        let response = ask("/v1/responses", "input", fields.clone()).await;
        assert_eq!(response["usage"]["input_tokens"], json!(known.as_array().unwrap().len()), "{fields}");
    }
    let redacted = json!({ "thinking_blocks": [{ "type": "redacted_thinking", "data": "x" }] });
    assert_eq!(ask("/tokenize", "messages", redacted).await["tokens"], silent);
}
