//! Tools, template options and fields that are refused.

use serde_json::{Value, json};

use crate::it::app::{Answer, TestApp};

const PATH: &str = "/v1/chat/completions";

async fn ask(app: &TestApp, more: Value) -> Answer {
    let mut body = json!({ "messages": [{ "role": "user", "content": "hello" }], "return_token_ids": true });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    app.post(PATH, body).await
}

async fn prompt(app: &TestApp, more: Value) -> String {
    let answer = ask(app, more).await.ok();
    let ids: Vec<u32> = serde_json::from_value(answer["prompt_token_ids"].clone()).unwrap();
    app.tokenizer().decode(&ids, false).unwrap()
}

fn weather() -> Value {
    json!([{ "type": "function", "function": { "name": "weather", "parameters": { "type": "object", "x": 1.0e-5 } } }])
}

#[tokio::test]
async fn tools_are_shown_to_the_model_with_their_numbers_as_python_writes_them() {
    let app = TestApp::new().says("hello");
    let shown = prompt(&app, json!({ "tools": weather(), "tool_choice": "none" })).await;
    let tool = r#"{"type": "function", "function": {"name": "weather", "description": null, "parameters": {"type": "object", "x": 1e-05}}}"#;
    assert!(shown.contains(tool), "{shown}");
}

#[tokio::test]
async fn a_server_without_a_tool_parser_serves_a_tool_choice_of_none_only() {
    let app = TestApp::new().says("hello");
    let named = json!({ "type": "function", "function": { "name": "weather" } });
    let cases = [
        (json!({ "tools": weather() }), Some("\"auto\" tool choice requires --enable-auto-tool-choice and")),
        (json!({ "tools": weather(), "tool_choice": null }), Some("\"auto\" tool choice requires")),
        (json!({ "tools": weather(), "tool_choice": "auto" }), Some("\"auto\" tool choice requires")),
        (
            json!({ "tools": weather(), "tool_choice": "required" }),
            Some("tool_choice=\"required\" requires --tool-call-parser"),
        ),
        (
            json!({ "tools": weather(), "tool_choice": named }),
            Some("tool_choice=function \"weather\" requires --tool-call-parser"),
        ),
        (json!({ "tools": weather(), "tool_choice": "never" }), Some("Invalid value for `tool_choice`: never!")),
        (json!({ "tools": weather(), "tool_choice": "none" }), None),
        (json!({ "tool_choice": "none" }), None),
        (json!({ "tool_choice": null }), None),
        (json!({ "tool_choice": "auto" }), Some("When using `tool_choice`, `tools` must be set.")),
        (json!({ "tool_choice": named }), Some("When using `tool_choice`, `tools` must be set.")),
        (json!({ "tools": [] }), Some("`tools` must not be an empty array.")),
        (json!({ "tools": [], "tool_choice": "none" }), Some("`tools` must not be an empty array.")),
    ];
    for (more, refusal) in cases {
        let answer = ask(&app, more.clone()).await;
        match refusal {
            None => assert_eq!(answer.status, 200, "{more}: {}", answer.text),
            Some(words) => {
                assert_eq!(answer.status, 400, "{more}");
                let message = answer.error()["message"].as_str().unwrap().to_owned();
                assert!(message.contains(words), "{more}: {message}");
                assert_eq!(answer.error()["type"], "BadRequestError", "{more}");
            }
        }
    }
}

#[tokio::test]
async fn calls_and_their_results_are_rendered() {
    let app = TestApp::new().says("hello");
    let call =
        json!({ "id": "c", "type": "function", "function": { "name": "weather", "arguments": "{\"a\":  [1, 2]}" } });
    let messages = json!([
        { "role": "user", "content": "hello" },
        { "role": "assistant", "content": null, "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "c", "content": "123" },
    ]);
    let shown = prompt(&app, json!({ "messages": messages })).await;
    assert!(
        shown.contains("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"a\": [1, 2]}}\n</tool_call>"),
        "{shown}"
    );
    assert!(shown.contains("<tool_response>\n123\n</tool_response>"), "{shown}");
}

#[tokio::test]
async fn a_prompt_may_end_before_or_inside_an_assistant_message() {
    let app = TestApp::new().says("hello");
    let closed = prompt(&app, json!({ "add_generation_prompt": false })).await;
    assert_eq!(closed, "<|im_start|>user\nhello<|im_end|>\n");
    let messages = json!([{ "role": "user", "content": "hello" }, { "role": "assistant", "content": "you" }]);
    let more = json!({ "messages": messages, "continue_final_message": true, "add_generation_prompt": false });
    let open = prompt(&app, more).await;
    assert_eq!(open, "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nyou");
}

#[tokio::test]
async fn template_options_reach_the_template_and_reserved_ones_are_refused() {
    let app = TestApp::new().chat_template("{{ messages[0].content }}|{{ mood }}|{{ reasoning_effort }}").says("hello");
    let more = json!({ "chat_template_kwargs": { "mood": "in" }, "reasoning_effort": "low" });
    assert_eq!(prompt(&app, more).await, "hello|in|low");
    for name in ["messages", "tools", "tokenize", "chat_template"] {
        let refused = ask(&app, json!({ "chat_template_kwargs": { name: "x" } })).await;
        assert_eq!(refused.status, 400, "{name}");
    }
    let refused = ask(&app, json!({ "chat_template": "{{ 1 }}" })).await;
    let message = refused.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("--trust-request-chat-template is not set"), "{message}");
}

#[tokio::test]
async fn what_a_template_says_when_it_refuses_is_what_the_client_reads() {
    let app = TestApp::new().chat_template("{{ raise_exception('roles must alternate') }}");
    let refused = ask(&app, json!({})).await;
    assert_eq!(refused.status, 400);
    assert!(refused.error()["message"].as_str().unwrap().contains("roles must alternate"), "{}", refused.text);
}

#[tokio::test]
async fn fields_that_would_change_the_answer_are_refused_and_their_neutral_values_are_not() {
    let app = TestApp::new().says("hello");
    let refused = [("use_beam_search", json!(true)), ("logits_processors", json!(["a"]))];
    for (field, value) in refused {
        let answer = ask(&app, json!({ field: value })).await;
        assert_eq!(answer.status, 400, "{field}");
        assert_eq!(answer.error()["param"], field);
        assert!(answer.error()["message"].as_str().unwrap().contains("not supported"), "{}", answer.text);
        // vLLM's request has no null for these.
        let never_null = matches!(field, "use_beam_search" | "spaces_between_special_tokens" | "echo");
        let status = if never_null { 400 } else { 200 };
        assert_eq!(ask(&app, json!({ field: null })).await.status, status, "{field}: null");
    }
    let neutral = json!({ "response_format": { "type": "text" }, "use_beam_search": false,
                          "kv_transfer_params": { "do_remote_decode": false } });
    assert_eq!(ask(&app, neutral).await.status, 200);
}
