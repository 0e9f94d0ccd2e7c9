//! Calls, results of tools and tools that a client changes beside ids which the server does not remember.

use serde_json::{Value, json};
use tito::{
    TokenId,
    parser::{ReasoningParser, ToolParser},
    turn::ToolPolicy,
};

use crate::it::app::{IM_END, TestApp};

const CHAT: &str = "/v1/chat/completions";
const FIRST: &str = "<think>so</think>I do both. <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"one\"}}\n</tool_call>\n\
                     <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"two\", \"n\": 5}}\n</tool_call>";
const LAST: &str = "<think>hm, more</think>Once more. <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"last\"}}\n\
                    </tool_call>";

/// An app whose template shows tools and calls. It remembers nothing.
fn app() -> TestApp {
    let policy = ToolPolicy {
        parser: ToolParser::named("hermes"),
        reasoning: ReasoningParser::named("qwen3"),
        auto: true,
        ..ToolPolicy::default()
    };
    TestApp::new()
        .tools(policy)
        .chat_template(include_str!("../../golden/template/hermes.jinja"))
        .max_model_len(8192)
        .continuity(|policy| policy.memory = None)
}

fn tool(name: &str) -> Value {
    json!({ "type": "function", "function": { "name": name, "description": format!("does {name}") } })
}

/// A conversation of three answers, of which only the last one carries its ids, up to the result of its call.
async fn conversation() -> Value {
    let app = app();
    let script = |text: &str| -> Vec<TokenId> { app.spelled(text).into_iter().chain([IM_END]).collect() };
    let scripts =
        [FIRST, "<think>well</think>All is fine then, and there is nothing more that I could do for you today.", LAST]
            .map(script);
    let app = self::app().scripts(scripts);
    let mut messages = vec![json!({ "role": "user", "content": "go on" })];
    let tools = [tool("f"), tool("g")];
    for results in [&["result one", "result two"][..], &[], &["the last result"]] {
        let body = json!({ "messages": messages, "tools": tools, "return_token_ids": true, "max_tokens": 2000 });
        let answer = app.post(CHAT, body).await.ok();
        let message = answer["choices"][0]["message"].clone();
        let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        assert_eq!(calls.len(), results.len(), "{message}");
        messages.push(message);
        for (call, result) in calls.iter().zip(results) {
            messages.push(json!({ "role": "tool", "tool_call_id": call["id"], "content": result }));
        }
        if results.is_empty() {
            messages.push(json!({ "role": "user", "content": "and so?" }));
        }
    }
    for message in &mut messages[..LAST_ANSWER] {
        for field in ["prompt_token_ids", "generation_token_ids", "generation_log_probs"] {
            message.as_object_mut().unwrap().shift_remove(field);
        }
    }
    json!({ "messages": messages, "tools": tools, "return_token_continuity": true })
}

type Change = fn(&mut Value);

fn arguments(body: &mut Value, message: usize, call: usize, arguments: &Value) {
    body["messages"][message]["tool_calls"][call]["function"]["arguments"] = json!(arguments.to_string());
}

const FIRST_ANSWER: usize = 1;
const LAST_ANSWER: usize = 6;

/// What a client does, and the warnings that it gets.
const EDITS: [(&str, Change, &[&str]); 23] = [
    ("nothing", |_| {}, &[]),
    ("spells arguments otherwise", |body| arguments(body, 1, 1, &json!({ "n": 5.0, "a": "two" })), &[]),
    ("leaves thoughts out", |body| body["messages"][LAST_ANSWER]["reasoning"] = Value::Null, &[]),
    ("arguments", |body| arguments(body, LAST_ANSWER, 0, &json!({ "a": "EDITED" })), &["message_edited"]),
    ("an argument more", |body| arguments(body, LAST_ANSWER, 0, &json!({ "a": "last", "b": 1 })), &["message_edited"]),
    ("an argument less", |body| arguments(body, LAST_ANSWER, 0, &json!({})), &["message_edited"]),
    (
        "another name",
        |body| body["messages"][LAST_ANSWER]["tool_calls"][0]["function"]["name"] = json!("g"),
        &["message_edited"],
    ),
    (
        "no call",
        |body| {
            body["messages"][LAST_ANSWER].as_object_mut().unwrap().shift_remove("tool_calls");
            body["messages"].as_array_mut().unwrap().pop();
            body["messages"].as_array_mut().unwrap().push(json!({ "role": "user", "content": "well" }));
        },
        &["message_edited"],
    ),
    ("another text", |body| body["messages"][LAST_ANSWER]["content"] = json!("Once less. "), &["message_edited"]),
    ("no text", |body| body["messages"][LAST_ANSWER]["content"] = Value::Null, &["message_edited"]),
    ("other thoughts", |body| body["messages"][LAST_ANSWER]["reasoning"] = json!("hm"), &["message_edited"]),
    ("earlier arguments", |body| arguments(body, FIRST_ANSWER, 1, &json!({ "a": "two", "n": 6 })), &["history_edited"]),
    ("earlier arguments less", |body| arguments(body, FIRST_ANSWER, 1, &json!({ "a": "two" })), &["history_edited"]),
    (
        "earlier name",
        |body| body["messages"][FIRST_ANSWER]["tool_calls"][0]["function"]["name"] = json!("g"),
        &["history_edited"],
    ),
    (
        "earlier calls swapped",
        |body| {
            let calls = &mut body["messages"][FIRST_ANSWER]["tool_calls"];
            calls.as_array_mut().unwrap().reverse();
        },
        &["history_edited"],
    ),
    ("no earlier text", |body| body["messages"][FIRST_ANSWER]["content"] = Value::Null, &["history_edited"]),
    (
        "half of an earlier answer",
        |body| body["messages"][4]["content"] = json!("All is fine then,"),
        &["history_edited"],
    ),
    ("an emptied result", |body| body["messages"][2]["content"] = json!(""), &["history_edited"]),
    (
        "two emptied results",
        |body| {
            for message in [2, 3] {
                body["messages"][message]["content"] = json!("");
            }
        },
        &["history_edited"],
    ),
    ("a tool more", |body| body["tools"].as_array_mut().unwrap().push(tool("NEW")), &["context_changed"]),
    ("a tool less", |body| _ = body["tools"].as_array_mut().unwrap().pop(), &["context_changed"]),
    ("another description", |body| body["tools"][0]["function"]["description"] = json!("other"), &["context_changed"]),
    ("no tools", |body| _ = body.as_object_mut().unwrap().shift_remove("tools"), &["context_changed"]),
];

#[tokio::test]
async fn edited_calls_results_and_tools_beside_ids_are_told() {
    let conversation = conversation().await;
    let (app, strict) = (app(), app().continuity(|policy| policy.strict = true));
    for (name, edit, expected) in EDITS {
        let mut body = conversation.clone();
        edit(&mut body);
        let answer = app.post("/tokenize", body.clone()).await.ok();
        assert_eq!(answer["token_continuity"]["warnings"], json!(expected), "{name}");
        let status = if expected.is_empty() { 200 } else { 400 };
        let answer = strict.post("/tokenize", body).await;
        assert_eq!(answer.status, status, "{name}: {}", answer.text);
    }
}

/// What this server answered is never taken for another text, whatever its readers leave out of it.
#[tokio::test]
async fn what_the_readers_leave_out_of_an_answer_is_no_edit() {
    let policy = ToolPolicy {
        parser: ToolParser::named("hermes"),
        reasoning: ReasoningParser::named("qwen3"),
        auto: true,
        ..ToolPolicy::default()
    };
    let call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";
    for text in [
        format!("<think>so</think>A {call} B"),
        format!("<think>so</think>A {call} B {call} C"),
        "<think>so</think>one</think>two".to_owned(),
        format!("<think>about {call} it"),
        format!("<think>so</think>{call}"),
    ] {
        let app = app().tools(policy);
        let script: Vec<TokenId> = app.spelled(&text).into_iter().chain([IM_END]).collect();
        let app = app.script(script).continuity(|policy| policy.strict = true);
        let mut messages = vec![json!({ "role": "user", "content": "go on" })];
        for _ in 0..3 {
            let body =
                json!({ "messages": messages, "tools": [tool("f")], "return_token_ids": true, "max_tokens": 900 });
            let answer = app.post(CHAT, body).await;
            assert_eq!(answer.status, 200, "{text}: {}", answer.text);
            let answer = answer.json();
            let message = answer["choices"][0]["message"].clone();
            let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
            messages.push(message);
            for call in &calls {
                messages.push(json!({ "role": "tool", "tool_call_id": call["id"], "content": "a result" }));
            }
            if calls.is_empty() {
                messages.push(json!({ "role": "user", "content": "and so?" }));
            }
        }
    }
}

/// A token that ends answers may have a text, which the next request, with the same tokens, does not take for a part of it.
#[tokio::test]
async fn a_stop_token_with_a_text_is_no_edit() {
    let app = TestApp::new().continuity(|policy| (policy.memory, policy.strict) = (None, true));
    let ids = app.ids("hello world");
    let app = app.script(ids.clone());
    let asked = json!({ "role": "user", "content": "hi" });
    let body = json!({ "messages": [asked], "stop_token_ids": [ids[ids.len() - 1]], "return_token_ids": true });
    let answer = app.post(CHAT, body.clone()).await.ok();
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let mut next = body;
    next["messages"] = json!([asked, answer["choices"][0]["message"], asked]);
    assert_eq!(app.post("/tokenize", next).await.status, 200);
}
