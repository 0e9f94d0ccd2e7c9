//! `output_mode: "derender"` of `/inference/v1/generate`: ids that were rendered from a chat are answered with its message.

use serde_json::{Value, json};
use tito::{
    parser::{ReasoningParser, ToolParser},
    turn::ToolPolicy,
};

use crate::it::app::{TestApp, redacted};

const CHAT: &str = "/v1/chat/completions";
const RENDER: &str = "/v1/chat/completions/render";
const GENERATE: &str = "/inference/v1/generate";
const CALL: &str = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";

fn reading() -> TestApp {
    let parser = ToolParser::named("hermes");
    TestApp::new().tools(ToolPolicy {
        parser,
        auto: true,
        reasoning: ReasoningParser::named("deepseek_r1"),
        ..ToolPolicy::default()
    })
}

fn tools() -> Value {
    json!([{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }])
}

fn asking(more: &Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "hello" }], "temperature": 0, "max_tokens": 90 });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    body
}

/// The request in ids, which asks for the message.
async fn rendered(app: &TestApp, body: &Value) -> Value {
    let mut rendered = app.post(RENDER, body.clone()).await.ok();
    rendered["output_mode"] = json!("derender");
    rendered
}

#[tokio::test]
async fn the_message_is_that_of_the_chat() {
    let called = format!("I think.</think>Let me see.{CALL}{CALL}");
    let logprobs = json!({ "logprobs": true, "top_logprobs": 2, "return_token_ids": true });
    let begun = json!([{ "role": "user", "content": "hello" }, { "role": "assistant", "content": "I say " }]);
    let asked = json!({ "add_generation_prompt": false, "echo": true });
    let mut repeated =
        json!({ "messages": begun, "continue_final_message": true, "add_generation_prompt": false, "echo": true });
    let repeats = repeated.clone();
    repeated["logprobs"] = json!(true);
    let cases = vec![
        (TestApp::new().says("hello world"), json!({})),
        (TestApp::new().says("hello world"), json!({ "logprobs": true })),
        (TestApp::new().says("hello world"), repeats.clone()),
        (TestApp::new().says("hello world"), repeated),
        (TestApp::new().says("hello world"), json!({ "echo": true })),
        (TestApp::new().says("hello world"), json!({ "add_generation_prompt": false })),
        (TestApp::new().says("hello world"), asked),
        (reading().says("So it is."), repeats),
        (TestApp::new().says("hello world"), json!({ "stop": "wor" })),
        (reading().says("I think.</think>So it is."), json!({})),
        (reading().says("I think.</think>So it is."), json!({ "include_reasoning": false })),
        (reading().says("I think."), json!({ "max_tokens": 3 })),
        (reading().says(&called), json!({ "tools": tools() })),
        (reading().says(&called), json!({ "tools": tools(), "tool_choice": "none" })),
        (reading().says(&called), json!({ "tools": tools(), "parallel_tool_calls": false })),
        (reading().says(&called), logprobs),
        (TestApp::new().says("hello world"), with_ids(&json!({ "truncate_prompt_tokens": 5 }))),
        (reading().says("I think.</think>So it is."), with_ids(&json!({ "truncate_prompt_tokens": 5 }))),
        (TestApp::new().says("hello world"), with_ids(&json!({ "truncate_prompt_tokens": 50 }))),
    ];
    for (app, more) in cases {
        let body = asking(&more);
        let rendered = rendered(&app, &body).await;
        let generated = app.post(GENERATE, rendered).await.ok();
        let (given, chat) = (&generated["choices"][0], app.post(CHAT, body).await.ok());
        assert_eq!(generated["output_mode"], "derender");
        for field in ["message", "finish_reason", "stop_reason", "logprobs"] {
            let [given, said] = [given, &chat["choices"][0]].map(|choice| redacted(choice[field].clone()));
            assert_eq!(given, said, "{field} {more}");
        }
        for field in ["completion_tokens", "completion_tokens_details"] {
            assert_eq!(generated["usage"][field], chat["usage"][field], "{field} {more}");
        }
        assert_eq!(
            given["token_ids"].as_array().map(Vec::len),
            given["weight_versions"][0]["end"].as_u64().map(|end| usize::try_from(end).unwrap())
        );
        assert_eq!(given.get("text"), None);
    }
}

/// Stop strings count from the mark of a call on that stands in thoughts without an end, and not before it.
#[tokio::test]
async fn ids_end_where_those_of_the_chat_end() {
    let called = format!("I think.</think>Let me see.{CALL}{CALL}");
    let cases = [
        ("I <tool think <tool_call>on and on", json!({ "tools": tools(), "stop": ["<t"] })),
        ("I <tool think <tool_call>on and on", json!({ "stop": ["<t"] })),
        ("I think on </tool_call> and on", json!({ "tools": tools(), "stop": ["</tool"] })),
        ("I</think>on <tool_call> and on", json!({ "tools": tools(), "stop": ["<t"] })),
        (&called, json!({ "tools": tools(), "parallel_tool_calls": false })),
    ];
    for (text, more) in cases {
        let body = asking(&with_ids(&more));
        let app = reading().says(text);
        let chat = app.post(CHAT, body.clone()).await.ok()["choices"][0].clone();
        for mode in ["tokens", "text"] {
            let mut request = app.post(RENDER, body.clone()).await.ok();
            request["output_mode"] = json!(mode);
            let given = app.post(GENERATE, request).await.ok()["choices"][0].clone();
            for field in ["token_ids", "stop_reason"] {
                assert_eq!(given[field], chat[field], "{mode} {field} {text} {more}: {given} {chat}");
            }
        }
    }
}

fn with_ids(more: &Value) -> Value {
    let mut more = more.clone();
    more["return_token_ids"] = json!(true);
    more
}

#[tokio::test]
async fn a_render_says_what_to_know_of_the_chat() {
    let app = reading();
    let body = asking(
        &json!({ "reasoning_effort": "low", "chat_template_kwargs": { "big": 12_345_678_901_234_567_890_u64 } }),
    );
    assert_eq!(
        rendered(&app, &body).await["parse_context"],
        json!({
            "tools": null, "tool_choice": "none", "parallel_tool_calls": true, "include_reasoning": true,
            "chat_template_kwargs": {
                "enable_thinking": true, "big": 12_345_678_901_234_567_890_u64, "reasoning_effort": "low",
            },
            "history_tool_call_cnt": 0,
        })
    );
    let call = json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let messages = json!([
        { "role": "user", "content": "hello" },
        { "role": "assistant", "content": null, "tool_calls": [call, call] },
        { "role": "tool", "tool_call_id": "c", "content": "1" },
    ]);
    let body = asking(&json!({ "messages": messages, "tools": tools(), "include_reasoning": false }));
    let context = rendered(&app, &body).await["parse_context"].clone();
    let told = [&context["tools"], &context["tool_choice"], &context["include_reasoning"]];
    assert_eq!((told, &context["history_tool_call_cnt"]), ([&tools(), &json!("auto"), &json!(false)], &json!(2)));
    // Pydantic takes these for booleans, and a chat is read so.
    let body = asking(&json!({ "parallel_tool_calls": "no", "include_reasoning": 0 }));
    let context = rendered(&app, &body).await["parse_context"].clone();
    assert_eq!((&context["parallel_tool_calls"], &context["include_reasoning"]), (&json!(false), &json!(false)));
    for (kept, is_cut) in [(5, json!(true)), (50, Value::Null)] {
        let body = asking(&json!({ "truncate_prompt_tokens": kept }));
        assert_eq!(rendered(&app, &body).await["parse_context"]["prompt_is_cut"], is_cut);
    }
    let text = app.post("/v1/completions/render", json!({ "prompt": "hello" })).await.ok();
    assert_eq!(text[0]["parse_context"], Value::Null);
}

#[tokio::test]
async fn what_cannot_be_read_as_the_chat_would_be_is_refused() {
    let app = reading().says("hello");
    let with = |more: Value| {
        let mut body = json!({ "token_ids": app.ids("hello"), "sampling_params": {}, "output_mode": "derender" });
        body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        body
    };
    let context = |more: Value| with(json!({ "parse_context": more }));
    let named = |name: &str| json!({ "type": "function", "function": { "name": name } });
    let strict = json!([{ "type": "function", "function": { "name": "f", "strict": true, "parameters": {} } }]);
    let cases = [
        (with(json!({})), "requires parse_context on a server with a tool or reasoning parser"),
        (with(json!({ "stream": true, "parse_context": {} })), "does not support stream=true."),
        (
            with(json!({ "sampling_params": { "detokenize": false } })),
            "output_mode='derender' requires sampling_params.detokenize",
        ),
        (context(json!({ "later": 1, "and": 2 })), "Unknown parse_context fields [\"and\", \"later\"]"),
        (context(json!({ "include_reasoning": "perhaps" })), "body.parse_context"),
        (context(json!({ "tools": tools(), "tool_choice": "required" })), "forces a call"),
        (
            context(json!({ "tools": tools(), "tool_choice": named("no_such") })),
            "does not match any of the specified `tools`",
        ),
        (context(json!({ "tools": [], "tool_choice": named("f") })), "does not match any of the specified `tools`"),
        (context(json!({ "tool_choice": named("f") })), "does not match any of the specified `tools`"),
        (context(json!({ "tools": strict, "tool_choice": "auto" })), "`strict`"),
        (context(json!({ "tools": [5], "tool_choice": "auto" })), "a tool is an object"),
    ];
    for (body, words) in cases {
        let answer = app.post(GENERATE, body.clone()).await;
        assert_eq!(answer.status, 400, "{body} {}", answer.text);
        assert!(answer.error()["message"].as_str().unwrap().contains(words), "{body}: {}", answer.text);
    }
    // Clients without tools send an empty list of them, and what only this mode reads is ignored by others.
    app.post(GENERATE, context(json!({ "tools": [], "tool_choice": "auto" }))).await.ok();
    let mut ids_only = context(json!({ "later": 1 }));
    ids_only["output_mode"] = json!("tokens");
    assert_eq!(app.post(GENERATE, ids_only).await.ok()["choices"][0].get("message"), None);
}
