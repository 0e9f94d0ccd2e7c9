//! What derenders are told of a prompt: by the request, by what was generated, and by the state of a stream.

use crate::it::app::TestApp;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions/derender";
const TEXT: &str = "/v1/completions/derender";

/// The ways to put an answer into text, where the request and the answer say these things of its prompt.
fn derenders(ids: &Value, count: &Value, generated: &Value) -> [(&'static str, Value); 4] {
    let mut answer = json!({
        "request_id": "x", "choices": [{ "index": 0, "token_ids": [5, 6], "finish_reason": "length" }],
    });
    answer.as_object_mut().unwrap().append(&mut generated.as_object().unwrap().clone());
    if answer["usage"].is_null() {
        // An event without usage is answered without usage.
        answer["usage"] = json!({ "completion_tokens": 2 });
    }
    let asks = json!({ "messages": [{ "role": "user", "content": "hello" }], "return_token_ids": true });
    let list = |value: &Value| if value.is_null() { Value::Null } else { json!([value]) };
    [
        (
            CHAT,
            json!({ "generate_response": answer, "prompt_token_ids": ids, "prompt_tokens": count, "chat_request": asks }),
        ),
        (TEXT, json!({ "generate_responses": [answer], "prompt_token_ids": list(ids), "prompt_tokens": list(count) })),
        (CHAT, json!({ "stream": true, "generate_chunk": answer, "prompt_token_ids": ids, "prompt_tokens": count })),
        (TEXT, json!({ "stream": true, "generate_chunk": answer, "prompt_token_ids": ids, "prompt_tokens": count })),
    ]
}

#[tokio::test]
async fn what_is_told_of_a_prompt_must_agree() {
    let app = TestApp::new();
    let cases = [
        (json!([1, 2, 3]), json!(99), json!({}), "prompt_tokens"),
        (json!([1, 2, 3]), Value::Null, json!({ "prompt_token_ids": [7, 8] }), "prompt_token_ids"),
        (json!([1, 2, 3]), json!(3), json!({ "usage": { "prompt_tokens": 4 } }), "prompt_tokens"),
        (Value::Null, json!(3), json!({ "prompt_token_ids": [7, 8] }), "prompt_tokens"),
        (Value::Null, json!(3), json!({ "usage": { "prompt_tokens": 4 } }), "prompt_tokens"),
    ];
    for (ids, count, generated, field) in cases {
        for (path, body) in derenders(&ids, &count, &generated) {
            let answer = app.post(path, body.clone()).await;
            assert_eq!(
                (answer.status, &answer.error()["param"]),
                (400, &json!(field)),
                "{path} {body}: {}",
                answer.text
            );
        }
    }
}

#[tokio::test]
async fn usage_counts_the_prompt_that_is_known() {
    let app = TestApp::new();
    let cases = [
        (json!([1, 2, 3]), Value::Null, json!({}), 3),
        (Value::Null, Value::Null, json!({ "prompt_token_ids": [1, 2, 3] }), 3),
        (Value::Null, Value::Null, json!({ "usage": { "prompt_tokens": 4, "completion_tokens": 2 } }), 4),
        (Value::Null, json!(5), json!({}), 5),
        // Zero says nothing: it is what vLLM has where a count is absent.
        (json!([1, 2, 3]), json!(0), json!({ "usage": { "prompt_tokens": 0, "completion_tokens": 2 } }), 3),
        (json!([1, 2, 3]), json!(3), json!({ "prompt_token_ids": [1, 2, 3] }), 3),
        (Value::Null, Value::Null, json!({}), 0),
    ];
    for (ids, count, generated, tokens) in cases {
        for (path, body) in derenders(&ids, &count, &generated) {
            let answer = app.post(path, body.clone()).await.ok();
            let usage = &answer.get("chunk").unwrap_or(&answer)["usage"];
            assert_eq!(usage["prompt_tokens"], tokens, "{path} {body}");
            assert_eq!(usage["total_tokens"], tokens + 2, "{path} {body}");
        }
    }
}

#[tokio::test]
async fn a_stream_goes_on_with_its_own_prompt() {
    let app = TestApp::new();
    let long: Vec<u32> = (5..50).collect();
    for path in [CHAT, TEXT] {
        let event = |prompt: Value, state: Value| {
            let chunk = json!({ "choices": [{ "index": 0, "token_ids": [5] }] });
            json!({ "stream": true, "generate_chunk": chunk, "prompt_token_ids": prompt, "stream_state": state })
        };
        for prompt in [json!(long), json!([7, 8])] {
            let first = app.post(path, event(prompt.clone(), Value::Null)).await.ok();
            for next in [prompt.clone(), Value::Null] {
                app.post(path, event(next, first["stream_state"].clone())).await.ok();
            }
            let other = app.post(path, event(json!([9]), first["stream_state"].clone())).await;
            assert_eq!((other.status, &other.error()["param"]), (400, &json!("prompt_token_ids")), "{}", other.text);
        }
    }
}
