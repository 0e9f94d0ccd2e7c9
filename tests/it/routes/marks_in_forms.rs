//! Marks of reasoning in a text that has a form: behind the end of the reasoning, all of it is content.

use serde_json::{Value, json};
use tito::{
    parser::{ReasoningParser, ToolParser},
    turn::ToolPolicy,
};

use crate::it::{
    app::{IM_END, TestApp},
    streaming::adds_up,
};

const CHAT: &str = "/v1/chat/completions";
const PARSERS: [&str; 8] =
    ["deepseek_r1", "glm45", "kimi_k2", "minimax_m2", "nemotron_v3", "qwen3", "ernie45", "deepseek_v4"];

/// A model that would write `text`, and puts what it is forced to in the place of what it would write.
fn writing(parser: &str, text: &str) -> TestApp {
    let policy = ToolPolicy {
        reasoning: ReasoningParser::named(parser),
        parser: ToolParser::named("hermes"),
        auto: true,
        ..ToolPolicy::default()
    };
    let app = TestApp::new().tools(policy);
    let ids = app.spelled(text);
    app.script(ids.into_iter().chain([IM_END]))
}

fn asking(more: &Value) -> Value {
    let mut body = json!({
        "messages": [{ "role": "user", "content": "hello" }], "temperature": 0, "max_tokens": 200, "return_token_ids": true,
        "chat_template_kwargs": { "thinking": true },
    });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    body
}

async fn message(app: &TestApp, more: &Value) -> Value {
    let choice = app.post(CHAT, asking(more)).await.ok()["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "stop", "{choice}");
    choice["message"].clone()
}

#[tokio::test]
async fn a_text_of_a_form_keeps_the_marks_in_it() {
    let said = "x</think>y<think>z</think>";
    let quoted = format!("\"{said}\"");
    let forms = [
        (json!({ "structured_outputs": { "json": { "const": said } } }), quoted.as_str()),
        (json!({ "structured_outputs": { "choice": [said, "w</think>z"] } }), said),
        (json!({ "structured_outputs": { "regex": "x</think>y<think>z</think>" } }), said),
        (
            json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "f", "schema": { "const": said } } } }),
            quoted.as_str(),
        ),
    ];
    for parser in PARSERS {
        for (index, (form, expected)) in forms.iter().enumerate() {
            // A budget would begin anew with the mark in the text.
            for budget in [None, (index == 0).then_some(1)].into_iter().take(1 + usize::from(index == 0)) {
                let mut more = form.clone();
                more["thinking_token_budget"] = json!(budget);
                let app = || writing(parser, &format!("a</think>{expected}"));
                let told = message(&app(), &more).await;
                assert_eq!((&told["reasoning"], &told["content"]), (&json!("a"), &json!(expected)), "{parser} {more}");
                adds_up(app, CHAT, asking(&more)).await;
            }
        }
    }
}

/// The sampler knows the end by its token, so the reader does.
#[tokio::test]
async fn thoughts_of_a_form_may_spell_the_mark_that_ends_them() {
    for parser in ["deepseek_r1", "qwen3", "glm45"] {
        let policy = ToolPolicy { reasoning: ReasoningParser::named(parser), ..ToolPolicy::default() };
        let app = || {
            let app = TestApp::new().tools(policy);
            // Each character is a token of its own.
            let spelled: Vec<_> = "a</think>b".chars().flat_map(|c| app.spelled(&c.to_string())).collect();
            let ids = [spelled, app.spelled("</think>yes"), vec![IM_END]].concat();
            app.script(ids)
        };
        for stop in [json!(null), json!(["zzzz"])] {
            let more = json!({ "structured_outputs": { "choice": ["yes", "no"] }, "stop": stop });
            let told = message(&app(), &more).await;
            assert_eq!((&told["reasoning"], &told["content"]), (&json!("a</think>b"), &json!("yes")), "{parser}");
            adds_up(app, CHAT, asking(&more)).await;
        }
    }
}

#[tokio::test]
async fn a_form_behind_a_prompt_that_ended_the_thoughts_has_none() {
    let said = "<think>y</think>";
    for parser in ["glm45", "qwen3", "deepseek_v4"] {
        let off = json!({ "enable_thinking": false, "thinking": false });
        let more = json!({ "structured_outputs": { "json": { "const": said } }, "chat_template_kwargs": off });
        let told = message(&writing(parser, &format!("\"{said}\"")), &more).await;
        assert_eq!((&told["reasoning"], &told["content"]), (&Value::Null, &json!(format!("\"{said}\""))), "{parser}");
    }
}

/// A stop string counts in the text, whatever marks stand in front of it there.
#[tokio::test]
async fn stop_strings_count_behind_the_marks_of_a_form() {
    let more = json!({ "structured_outputs": { "choice": ["x<think>ystopz"] }, "stop": ["stop"] });
    let told = message(&writing("glm45", "a stop</think>x<think>ystopz"), &more).await;
    assert_eq!((&told["reasoning"], &told["content"]), (&json!("a stop"), &json!("x<think>y")));
}

#[tokio::test]
async fn a_forced_call_that_ends_the_thoughts_keeps_the_marks_in_it() {
    let parameters =
        json!({ "type": "object", "properties": { "a": { "enum": ["x</think>y<think>"] } }, "required": ["a"] });
    let function = json!({ "name": "f", "parameters": parameters, "strict": true });
    let tools = json!([{ "type": "function", "function": function }]);
    let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x</think>y<think>\"}}\n</tool_call>";
    for parser in ["qwen3", "glm45", "nemotron_v3"] {
        for begins in ["a<tool_call>", "a</think><tool_call>"] {
            for choice in ["required", "auto"] {
                let text = call.replace("<tool_call>", begins);
                let more = json!({ "tools": tools, "tool_choice": choice, "parallel_tool_calls": false });
                let app = writing(parser, &text);
                let choice = app.post(CHAT, asking(&more)).await.ok()["choices"][0].clone();
                let told = &choice["message"];
                assert_eq!(told["reasoning"], "a", "{parser} {text} {choice}");
                let arguments = "{\"a\": \"x</think>y<think>\"}";
                assert_eq!(told["tool_calls"][0]["function"]["arguments"], arguments, "{parser} {text} {choice}");
            }
        }
    }
}
