//! Fields of other endpoints: refused where they would change what is sampled, ignored where they ask for nothing.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect_file;
use serde_json::{Value, json};

use crate::it::app::{MODEL, TestApp};

/// Of each endpoint with a conversation, a prompt or ids: the least that it answers.
fn endpoints() -> [(&'static str, Value); 7] {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    [
        ("/v1/chat/completions", json!({ "model": MODEL, "messages": messages })),
        ("/v1/completions", json!({ "model": MODEL, "prompt": "hello" })),
        ("/v1/messages", json!({ "model": MODEL, "messages": messages, "max_tokens": 5 })),
        ("/v1/responses", json!({ "model": MODEL, "input": "hello" })),
        ("/tokenize", json!({ "model": MODEL, "messages": messages })),
        ("/generate", json!({ "text": "hello" })),
        ("/inference/v1/generate", json!({ "token_ids": [1], "sampling_params": {} })),
    ]
}

async fn answer_to(app: &TestApp, path: &str, least: &Value, field: &str, value: &Value) -> (u16, Value) {
    let mut body = least.clone();
    body[field] = value.clone();
    let answer = app.post(path, body).await;
    (answer.status, answer.json())
}

#[tokio::test]
async fn what_would_change_the_answer_is_refused_with_what_to_send() {
    let app = TestApp::new();
    let cases = [
        ("/v1/chat/completions", "max_output_tokens", json!(5), "is not served on chats: send `max_completion_tokens`"),
        ("/v1/completions", "max_output_tokens", json!(5), "is not served on text completions: send `max_tokens`"),
        ("/v1/messages", "reasoning_effort", json!("low"), "is not served on messages: send `output_config.effort`"),
        ("/v1/responses", "reasoning_effort", json!("low"), "is not served on responses: send `reasoning.effort`"),
        ("/tokenize", "truncate_prompt_tokens", json!(5), "is not served on `/tokenize`: nothing is cut off here"),
        (
            "/generate",
            "temperature",
            json!(0),
            "is not served on `/generate`: how to sample is said in `sampling_params`",
        ),
        (
            "/inference/v1/generate",
            "seed",
            json!(0),
            "is not served on `/inference/v1/generate`: how to sample is said in",
        ),
    ];
    for (path, field, value, reason) in cases {
        let (_, least) = endpoints().into_iter().find(|(named, _)| *named == path).unwrap();
        let (status, answer) = answer_to(&app, path, &least, field, &value).await;
        assert_eq!(status, 400, "{path} {field}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("`{field}` {reason}")), "{path} {field}: {message}");
        let (status, answer) = answer_to(&app, path, &least, field, &Value::Null).await;
        assert_eq!(status, 200, "{path} {field} null: {answer}");
    }
}

/// Names of other dialects that an endpoint takes for its own.
const TAKEN: [(&str, &str, &str); 4] = [
    ("/v1/chat/completions", "stop_sequences", "stop"),
    ("/v1/completions", "stop_sequences", "stop"),
    ("/v1/completions", "max_completion_tokens", "max_tokens"),
    ("/v1/responses", "max_tokens", "max_output_tokens"),
];

/// Names that gateways and SDKs send whatever the endpoint is.
#[tokio::test]
async fn names_of_other_dialects_are_taken_where_the_own_name_is_missing() {
    let app = TestApp::new().says("you and me");
    for (path, alias, own) in TAKEN {
        let (wish, other) = if own == "stop" { (json!(["and"]), json!(["me"])) } else { (json!(1), json!(2)) };
        let (_, least) = endpoints().into_iter().find(|(named, _)| *named == path).unwrap();
        let sampled = async |fields: Value| {
            let mut body = least.clone();
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let usage = app.post(path, body).await.ok()["usage"].clone();
            usage["completion_tokens"].as_u64().or_else(|| usage["output_tokens"].as_u64()).unwrap()
        };
        let expected = sampled(json!({ own: wish })).await;
        assert_eq!(sampled(json!({ alias: wish })).await, expected, "{path} {alias}");
        assert_eq!(sampled(json!({ alias: wish, own: other })).await, sampled(json!({ own: other })).await, "{path}");
        assert_ne!(sampled(json!({ own: other })).await, expected, "{path} {alias}");
    }
}

/// What templates do not show of an assistant's turn.
#[tokio::test]
async fn what_an_assistant_said_in_older_fields_is_refused() {
    let app = TestApp::new();
    for (field, value, instead) in [
        ("function_call", json!({ "name": "f", "arguments": "{}" }), "send `tool_calls`"),
        ("refusal", json!("No."), "send it as `content`"),
    ] {
        for path in ["/v1/chat/completions", "/tokenize"] {
            let asked = |role: &str, value: &Value| json!({ "messages": [{ "role": "user", "content": "hello" }, { "role": role, "content": null, field: value }] });
            let refused = app.post(path, asked("assistant", &value)).await;
            assert_eq!(refused.status, 400, "{path} {field}: {}", refused.text);
            assert!(refused.error()["message"].as_str().unwrap().contains(instead), "{path} {field}: {}", refused.text);
            // tito's own answers have both, as null.
            assert_eq!(app.post(path, asked("assistant", &Value::Null)).await.status, 200, "{path} {field}");
            // Beside a text, it changes nothing.
            for role in ["user", "assistant"] {
                let mut beside = asked(role, &value);
                beside["messages"][1]["content"] = json!("a");
                assert_eq!(app.post(path, beside).await.status, 200, "{path} {field} {role}");
            }
        }
    }
}

/// The fields of the body of an endpoint, with their schemas.
fn fields_of(document: &Value, path: &str) -> BTreeMap<String, Value> {
    let mut fields = BTreeMap::new();
    let content = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"];
    gather(document, &content["schema"], &mut fields);
    assert!(!fields.is_empty(), "{path}");
    fields
}

fn gather(document: &Value, schema: &Value, fields: &mut BTreeMap<String, Value>) {
    if let Some(reference) = schema["$ref"].as_str() {
        gather(document, document.pointer(reference.trim_start_matches('#')).unwrap(), fields);
    }
    for kind in ["allOf", "oneOf", "anyOf"] {
        schema[kind].as_array().into_iter().flatten().for_each(|part| gather(document, part, fields));
    }
    let own = schema["properties"].as_object().into_iter().flatten();
    fields.extend(own.map(|(name, schema)| (name.clone(), schema.clone())));
}

/// A value that asks for something.
fn a_wish(schema: &Value) -> Value {
    let kinds = [&schema["type"], &schema["type"][0], &schema["type"][1]];
    match kinds.into_iter().filter_map(Value::as_str).find(|kind| *kind != "null") {
        Some("boolean") => json!(true),
        Some("integer" | "number") => json!(2),
        Some("string") => json!("x"),
        Some("array") => json!([1]),
        _ => json!({ "a": 1 }),
    }
}

/// Whatever one endpoint has is served by another, or refused, or in that file: of these, none decides which tokens there are.
#[tokio::test]
async fn what_is_ignored_is_known() {
    let document = serde_json::to_value(tito::api::openapi()).unwrap();
    let of_all = endpoints().map(|(path, least)| (path, least, fields_of(&document, path)));
    let known: BTreeMap<&String, &Value> = of_all.iter().flat_map(|(_, _, fields)| fields).collect();
    let app = TestApp::new();
    let mut lines = Vec::new();
    for (path, least, own) in &of_all {
        let mut ignored = BTreeSet::new();
        let is_taken = |field: &str| TAKEN.iter().any(|(of, name, _)| of == path && *name == field);
        for (field, schema) in known.iter().filter(|(field, _)| !own.contains_key(**field) && !is_taken(field)) {
            match answer_to(&app, path, least, field, &a_wish(schema)).await {
                (200, _) => ignored.insert(field.as_str()),
                (400, answer) => {
                    let message = answer["error"]["message"].as_str().unwrap();
                    assert!(message.contains(field.as_str()), "{path} {field}: {message}");
                    continue;
                }
                (status, answer) => panic!("{path} {field}: {status} {answer}"),
            };
        }
        lines.push((*path).to_owned());
        let ignored: Vec<&str> = ignored.into_iter().collect();
        lines.extend(ignored.chunks(6).map(|names| format!("    {}", names.join(" "))));
    }
    expect_file!["../../golden/ignored_fields.txt"].assert_eq(&(lines.join("\n") + "\n"));
}
