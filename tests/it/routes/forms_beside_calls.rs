//! A form of the answer in a request with tools: one rule in every dialect. The form is one of the text, and a call is no
//! text.

use serde_json::{Value, json};
use tito::{
    parser::ToolParser,
    turn::{ToolPolicy, ToolStrictLevel},
};

use crate::it::app::{Answer, MODEL, TestApp};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";
/// What the model wants to say: a call whose argument the tool does not have, and a text that has the form.
const CALLS: &str = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"unit\": \"K\"}}\n</tool_call>";
const KEEPS: &str = "{\"said\": \"yes\"}";

fn arguments() -> Value {
    json!({ "type": "object", "properties": { "unit": { "type": "string", "enum": ["C", "F"] } }, "required": ["unit"] })
}

fn form() -> Value {
    json!({ "type": "object", "properties": { "said": { "type": "string", "enum": ["yes", "no"] } },
        "required": ["said"] })
}

/// A request for an answer of the form with a tool, in the words of each dialect; `choice` is one of chat's words.
fn asks(path: &str, strict: bool, choice: &str) -> Value {
    let schema = json!({ "type": "json_schema", "schema": form(), "name": "form" });
    let hello = json!([{ "role": "user", "content": "hello" }]);
    let tool = |parameters: &str| json!({ "name": "weather", parameters: arguments(), "strict": strict });
    match path {
        CHAT => {
            json!({ "messages": hello, "max_tokens": 400, "tools": [{ "type": "function", "function": tool("parameters") }],
            "tool_choice": choice, "response_format": { "type": "json_schema", "json_schema": { "name": "form", "schema": form() } } })
        }
        MESSAGES => json!({ "model": MODEL, "messages": hello, "max_tokens": 400, "tools": [tool("input_schema")],
            "tool_choice": { "type": if choice == "required" { "any" } else { choice } },
            "output_config": { "format": { "type": "json_schema", "schema": form() } } }),
        _ => {
            let mut function = tool("parameters");
            function["type"] = json!("function");
            json!({ "input": hello, "max_output_tokens": 400, "tools": [function], "tool_choice": choice,
                "text": { "format": schema } })
        }
    }
}

/// The text of an answer and the arguments of its calls.
fn parts(path: &str, answer: &Value) -> (String, Vec<Value>) {
    let parsed = |text: &Value| serde_json::from_str(text.as_str().unwrap()).unwrap();
    let (mut text, mut calls) = (String::new(), Vec::new());
    match path {
        CHAT => {
            let message = &answer["choices"][0]["message"];
            text.push_str(message["content"].as_str().unwrap_or_default());
            let made = message["tool_calls"].as_array().into_iter().flatten();
            calls.extend(made.map(|call| parsed(&call["function"]["arguments"])));
        }
        MESSAGES => {
            for block in answer["content"].as_array().unwrap() {
                text.push_str(block["text"].as_str().unwrap_or_default());
                calls.extend((block["type"] == "tool_use").then(|| block["input"].clone()));
            }
        }
        _ => {
            for item in answer["output"].as_array().unwrap() {
                text.push_str(item["content"][0]["text"].as_str().unwrap_or_default());
                calls.extend((item["type"] == "function_call").then(|| parsed(&item["arguments"])));
            }
        }
    }
    (text, calls)
}

fn is_form(text: &str) -> bool {
    let value = serde_json::from_str::<Value>(text).unwrap_or_default();
    value.as_object().is_some_and(|fields| fields.len() == 1) && ["yes", "no"].map(Value::from).contains(&value["said"])
}

fn is_strict(arguments: &Value) -> bool {
    arguments.as_object().is_some_and(|fields| fields.len() == 1)
        && ["C", "F"].map(Value::from).contains(&arguments["unit"])
}

/// The same of a stream of a chat.
fn folded(answer: &Answer) -> (String, Vec<Value>) {
    let (mut text, mut arguments) = (String::new(), Vec::<String>::new());
    for event in answer.events() {
        let delta = &event["choices"][0]["delta"];
        text.push_str(delta["content"].as_str().unwrap_or_default());
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
            arguments.resize(arguments.len().max(index + 1), String::new());
            arguments[index].push_str(call["function"]["arguments"].as_str().unwrap_or_default());
        }
    }
    (text, arguments.iter().map(|arguments| serde_json::from_str(arguments).unwrap()).collect())
}

#[tokio::test]
async fn an_answer_is_strict_calls_or_has_the_form_in_every_dialect() {
    // What the model wants, whether it may call, and whether it calls then.
    let cases = [(CALLS, "auto", true), (KEEPS, "auto", false), (CALLS, "required", true)];
    for (wants, choice, calls) in cases {
        let app = TestApp::new().reads_tool_calls().says(wants);
        for path in [CHAT, MESSAGES, RESPONSES] {
            let answer = app.post(path, asks(path, true, choice)).await;
            let (text, made) = parts(path, &answer.ok());
            let case = format!("{path} {choice} {wants:?}: {}", answer.text);
            assert_eq!(!made.is_empty(), calls, "{case}");
            assert!(made.iter().all(is_strict), "{case}");
            assert!(if made.is_empty() { is_form(&text) } else { text.trim().is_empty() }, "{case}");
            if path == CHAT {
                let mut body = asks(path, true, choice);
                body["stream"] = json!(true);
                assert_eq!(folded(&app.post(path, body).await), (text, made), "{case}");
            }
        }
    }
}

/// As in vLLM: nothing but the form says how a call would have to be.
#[tokio::test]
async fn beside_a_form_a_tool_that_is_not_strict_is_not_called_by_itself() {
    let app = TestApp::new().reads_tool_calls().says(CALLS);
    for path in [CHAT, MESSAGES, RESPONSES] {
        let (text, made) = parts(path, &app.post(path, asks(path, false, "auto")).await.ok());
        assert!(made.is_empty() && is_form(&text), "{path}: {text}");
    }
}

/// The form is JSON that formats without a mark write calls in.
#[tokio::test]
async fn json_of_the_form_that_looks_like_a_call_is_text() {
    for name in ["llama3_json", "llama4_json", "xlam"] {
        let fields = if name == "xlam" { ["name", "arguments"] } else { ["name", "parameters"] };
        let form = json!({ "type": "object", "required": fields,
            "properties": { fields[0]: { "type": "string" }, fields[1]: { "type": "object" } } });
        let person = json!({ fields[0]: "Ann", fields[1]: { "age": 3 } });
        let (form, wants) = match name {
            "xlam" => (json!({ "type": "array", "items": form }), json!([person]).to_string()),
            _ => (form, person.to_string()),
        };
        let policy = ToolPolicy { parser: ToolParser::named(name), auto: true, ..ToolPolicy::default() };
        let app = TestApp::new().tools(policy).says(&wants);
        for path in [CHAT, MESSAGES, RESPONSES] {
            let mut body = asks(path, false, "auto");
            for form in ["response_format", "output_config", "text"] {
                body.as_object_mut().unwrap().remove(form);
            }
            body["structured_outputs"] = json!({ "json": form });
            let (text, made) = parts(path, &app.post(path, body.clone()).await.ok());
            assert_eq!((text.as_str(), made), (wants.as_str(), Vec::new()), "{name} {path}");
            if path == CHAT {
                body["stream"] = json!(true);
                assert_eq!(folded(&app.post(path, body).await), (text, Vec::new()), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn json_of_the_form_is_text_in_a_message_that_is_derendered() {
    let wants = r#"{"name": "Ann", "parameters": {}}"#;
    let policy = ToolPolicy { parser: ToolParser::named("llama3_json"), auto: true, ..ToolPolicy::default() };
    let app = TestApp::new().tools(policy).says(wants);
    let mut body = asks(CHAT, false, "auto");
    body["response_format"] = json!({ "type": "json_object" });
    let mut rendered = app.post(&format!("{CHAT}/render"), body).await.ok();
    rendered.as_object_mut().unwrap().remove("token_offsets");
    rendered["output_mode"] = json!("derender");
    let answer = app.post("/inference/v1/generate", rendered).await.ok();
    assert_eq!(parts(CHAT, &answer), (wants.to_owned(), Vec::new()), "{answer}");
}

/// Clients that write calls by structural tags want them read.
#[tokio::test]
async fn calls_that_structural_tags_demand_are_read() {
    let app = TestApp::new().reads_tool_calls().says(CALLS);
    let mut body = asks(CHAT, false, "auto");
    body["response_format"] = json!({ "type": "structural_tag", "format": { "type": "tag", "begin": "<tool_call>\n",
        "content": { "type": "json_schema", "json_schema": { "type": "object" } }, "end": "\n</tool_call>" } });
    let (_, made) = parts(CHAT, &app.post(CHAT, body).await.ok());
    assert_eq!(made, [json!({ "unit": "K" })]);
}

#[tokio::test]
async fn random_logits_keep_to_either_in_every_format() {
    for name in ToolParser::names() {
        let policy = ToolPolicy { parser: ToolParser::named(name), auto: true, ..ToolPolicy::default() };
        let app = TestApp::new().tools(policy);
        for seed in 0..3 {
            let mut body = asks(CHAT, true, "auto");
            body["seed"] = json!(seed);
            body["max_tokens"] = json!(3000);
            let answer = app.post(CHAT, body).await;
            assert_eq!(answer.status, 200, "{name}: {}", answer.text);
            let answer = answer.ok();
            if answer["choices"][0]["finish_reason"] == "length" {
                // gpt-oss's thoughts, for whose end the tiny vocabulary has no token.
                assert_eq!(name, "openai", "{answer}");
                continue;
            }
            let (text, made) = parts(CHAT, &answer);
            assert!(made.iter().all(is_strict), "{name}: {answer}");
            assert!(if made.is_empty() { is_form(&text) } else { text.trim().is_empty() }, "{name}: {answer}");
        }
    }
}

#[tokio::test]
async fn a_form_that_no_grammar_tells_from_a_strict_call_is_refused_by_both_names() {
    let app = TestApp::new().reads_tool_calls();
    let held = TestApp::new().tools(ToolPolicy {
        parser: ToolParser::named("hermes"),
        auto: true,
        strict_level: ToolStrictLevel::Parameter,
        ..ToolPolicy::default()
    });
    for path in [CHAT, MESSAGES, RESPONSES] {
        let with_grammar = |strict| {
            let mut body = asks(path, strict, "auto");
            for form in ["response_format", "output_config", "text"] {
                body.as_object_mut().unwrap().remove(form);
            }
            body["structured_outputs"] = json!({ "grammar": "root ::= \"a\" | \"b\"" });
            body
        };
        let refused = app.post(path, with_grammar(true)).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.text);
        let message = refused.error()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("`tools`") && message.contains("`structured_outputs`"), "{message}");
        // What only the server would hold gives way to what the request demands.
        let (text, made) = parts(path, &held.post(path, with_grammar(false)).await.ok());
        assert!(made.is_empty() && ["a", "b"].contains(&text.as_str()), "{path}: {text}");
    }
}

/// Its grammar of calls would be lost: only the form is passed on.
#[tokio::test]
async fn a_render_with_a_form_and_a_strict_tool_is_refused() {
    let app = TestApp::new().reads_tool_calls();
    for path in [CHAT, MESSAGES, RESPONSES] {
        let refused = app.post(&format!("{path}/render"), asks(path, true, "auto")).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.text);
        assert!(refused.error()["message"].as_str().unwrap().contains("`strict`"), "{path}: {}", refused.text);
    }
}

/// Both begin with a bracket and the same key.
#[tokio::test]
async fn calls_and_forms_that_begin_alike_both_come() {
    let app = TestApp::new().tools(ToolPolicy {
        parser: ToolParser::named("llama3_json"),
        auto: true,
        ..ToolPolicy::default()
    });
    let form = json!({ "type": "object", "properties": { "name": { "type": "boolean" } }, "required": ["name"],
        "additionalProperties": false });
    let mut made = [false; 2];
    for seed in 0..40 {
        let mut body = asks(CHAT, true, "auto");
        body["response_format"]["json_schema"]["schema"] = form.clone();
        body["seed"] = json!(seed);
        body["max_tokens"] = json!(3000);
        let (_, calls) = parts(CHAT, &app.post(CHAT, body).await.ok());
        made[usize::from(calls.is_empty())] = true;
    }
    assert_eq!(made, [true; 2], "calls, forms");
}
