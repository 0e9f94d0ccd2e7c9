//! Which tokens belong to which item of a response, and how far a stream tells them.

use serde_json::{Value, json};
use tito::{
    parser::{ReasoningParser, ToolParser},
    turn::ToolPolicy,
};

use super::responses::{create, reading, streamed};
use crate::it::app::TestApp;

/// The names of tokens in a list of log-probs.
fn names(logprobs: &Value) -> Vec<&str> {
    logprobs.as_array().unwrap().iter().map(|token| token["token"].as_str().unwrap()).collect()
}

fn tools() -> Value {
    json!([{ "type": "function", "name": "f", "parameters": { "type": "object" } }])
}

/// What is held back, since it may become a mark or a stop string, belongs to the text and not to the thoughts before it.
#[tokio::test]
async fn log_probs_of_a_text_begin_behind_the_thoughts() {
    let include = json!(["message.output_text.logprobs", "token_ids"]);
    for (said, more, text) in [
        ("abc</think><tool hello", json!({ "tools": tools(), "stop": ["Xyq"] }), "<tool hello"),
        ("abc</think><tool_call> {\"na", json!({ "tools": tools() }), "<tool_call> {\"na"),
        ("abc</think>Xy", json!({ "stop": ["Xyq"] }), "Xy"),
        ("abc</think>hello", json!({}), "hello"),
        ("</think>hello", json!({}), "hello"),
        ("<think></think>hello", json!({}), "hello"),
        ("abc</think>", json!({}), ""),
    ] {
        let app = reading().says(said);
        let mut body = json!({ "input": "Hi", "include": include, "top_logprobs": 0 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let response = create(&app, body.clone()).await;
        let items = response["output"].as_array().unwrap();
        let Some(message) = items.iter().find(|item| item["type"] == "message") else {
            assert_eq!(text, "", "{said}");
            continue;
        };
        let part = &message["content"][0];
        assert_eq!(part["text"], text, "{said}");
        // The last token ends the turn.
        let expected: Vec<String> =
            app.ids(text).iter().map(|id| app.tokenizer().decode(&[*id], false).unwrap()).collect();
        let told = names(&part["logprobs"]);
        assert_eq!(told[..told.len() - 1], expected, "{said}");
        let events = streamed(&app, &body).await;
        let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
        let deltas: Vec<&str> = deltas.flat_map(|event| names(&event["logprobs"])).collect();
        assert_eq!(deltas, told, "{said}");
    }
}

#[tokio::test]
async fn an_empty_text_has_the_log_prob_of_its_end_in_the_stream_too() {
    let body = json!({ "input": "Hi", "include": ["message.output_text.logprobs"], "top_logprobs": 0 });
    let events = streamed(&TestApp::new().says(""), &body).await;
    let told = |kind: &str| {
        let of_kind = events.iter().filter(|event| event["type"] == kind);
        of_kind.map(|event| event["logprobs"].as_array().unwrap().len()).sum::<usize>()
    };
    assert_eq!((told("response.output_text.delta"), told("response.output_text.done")), (1, 1));
}

#[tokio::test]
async fn thoughts_that_are_cut_off_say_so() {
    let app = reading();
    let ids = app.ids("abc abc abc");
    let body = json!({ "input": "Hi", "max_output_tokens": ids.len(), "include": ["token_ids"] });
    let app = app.script(ids);
    let response = create(&app, body.clone()).await;
    let item = &response["output"][0];
    assert_eq!((&item["type"], &item["status"]), (&json!("reasoning"), &json!("incomplete")));
    let events = streamed(&app, &body).await;
    let done = events.iter().find(|event| event["type"] == "response.output_item.done").unwrap();
    assert_eq!(done["item"]["status"], "incomplete");
}

/// A call that thoughts run into without an end is none of them, whether or not the format of thoughts names its mark.
#[tokio::test]
async fn tokens_of_a_call_are_no_thoughts() {
    let call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    for (said, thoughts) in [(format!("abc {call}"), "abc "), (format!("{call} bb"), "")] {
        for name in ["deepseek_r1", "qwen3", "glm45"] {
            let parser = ToolParser::named("hermes");
            let reasoning = ReasoningParser::named(name);
            let app = TestApp::new().tools(ToolPolicy { parser, auto: true, reasoning, ..ToolPolicy::default() });
            let response = create(&app.says(&said), json!({ "input": "Hi", "tools": tools() })).await;
            let counted = &response["usage"]["output_tokens_details"]["reasoning_tokens"];
            assert_eq!(*counted, reading().ids(thoughts).len(), "{name} {said}: {response}");
        }
    }
}

/// The bytes of a token are the same wherever it is named.
#[tokio::test]
async fn bytes_of_parts_of_characters_are_their_own() {
    let app = TestApp::new().says("日é");
    let chat = json!({
        "messages": [{ "role": "user", "content": "hello" }], "logprobs": true, "top_logprobs": 1, "temperature": 0
    });
    let answer = app.post("/v1/chat/completions", chat).await.ok();
    let tokens = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert!(tokens.iter().any(|token| token["token"] == "\u{fffd}"), "{tokens:?}");
    for token in tokens {
        assert_eq!(token["top_logprobs"][0]["bytes"], token["bytes"], "{token}");
    }
    let bytes = tokens.iter().flat_map(|token| token["bytes"].as_array().unwrap().clone());
    let bytes: Vec<u8> = bytes.map(|byte| u8::try_from(byte.as_u64().unwrap()).unwrap()).collect();
    assert!(bytes.starts_with("日é".as_bytes()), "{bytes:?}");
}
