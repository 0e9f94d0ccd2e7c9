//! openapi/openapi.json is current, and what it says is there.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{Method, Request, header},
};
use expect_test::expect_file;
use serde_json::{Value, json};
use tito::{store::MemoryStore, tinker_sessions::TinkerBounds};

use crate::it::{
    app::TestApp,
    routes::trajectories::{POLICY, capture},
};

fn document() -> Value {
    serde_json::to_value(tito::api::openapi()).unwrap()
}

/// Method, path and the operation itself.
fn operations(document: &Value) -> Vec<(Method, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, methods): (&String, &Value)| {
        let path = path.clone();
        let operation = move |(method, operation): (&String, &Value)| {
            (method.to_uppercase().parse().unwrap(), path.clone(), operation.clone())
        };
        methods.as_object().unwrap().iter().map(operation).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_path).collect()
}

#[test]
fn the_committed_document_is_the_servers() {
    let text = tito::api::openapi().to_pretty_json().unwrap();
    expect_file!["../../openapi/openapi.json"].assert_eq(&format!("{text}\n"));
}

#[tokio::test]
async fn the_served_document_is_the_same() {
    assert_eq!(TestApp::new().get("/openapi.json").await.ok(), document());
}

#[tokio::test]
async fn every_route_of_the_document_answers() {
    let app = TestApp::new().tokenizer_info().tinker(TinkerBounds::default());
    for (method, path, operation) in operations(&document()) {
        let request = Request::builder().method(method.clone()).uri(&path);
        let request = request.header(header::CONTENT_TYPE, "application/json").body(Body::from("{}")).unwrap();
        let answer = app.request(request).await;
        assert!(answer.status != 405, "{method} {path}");
        assert!(answer.status != 404 || answer.json().get("detail").is_none(), "{method} {path}");
        let documented = operation["responses"].as_object().unwrap();
        assert!(documented.contains_key(&answer.status.to_string()), "{method} {path}: {}", answer.status);
    }
}

/// Queries and paths that are refused before anybody looks for what they name.
fn nonsense(path: &str, operation: &Value) -> Vec<String> {
    let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
    let of_place = |place: &'static str| parameters.iter().filter(move |parameter| parameter["in"] == place);
    let mut uris = vec![format!("{path}?%ff"), format!("{path}?no-such=1")];
    for name in of_place("query").map(|parameter| parameter["name"].as_str().unwrap()) {
        uris.extend([format!("{path}?{name}=-1"), format!("{path}?{name}=%ff"), format!("{path}?{name}=a&{name}=a")]);
    }
    let in_braces = |parameter: &Value| format!("{{{}}}", parameter["name"].as_str().unwrap());
    uris.extend(of_place("path").map(in_braces).map(|name| path.replace(&name, "%ff")));
    // What is left in braces is no part of a URI.
    uris.into_iter().map(|uri| uri.replace(['{', '}'], "")).collect()
}

#[tokio::test]
async fn refusals_of_queries_and_paths_are_documented() {
    let store = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX));
    let app = TestApp::new().captures(capture(store, POLICY)).tokenizer_info().tinker(TinkerBounds::default());
    let mut refused = 0;
    let mut untold = BTreeSet::new();
    for (method, path, operation) in operations(&document()) {
        for uri in nonsense(&path, &operation) {
            let request = Request::builder().method(method.clone()).uri(&uri).body(Body::from("{}")).unwrap();
            let status = app.request(request).await.status;
            refused += usize::from(status == 400);
            if operation["responses"].get(status.to_string()).is_none() {
                untold.insert(format!("{method} {uri}: {status}"));
            }
        }
    }
    assert!(untold.is_empty(), "{untold:#?}");
    assert!(refused > 20, "{refused}");
}

#[test]
fn every_operation_has_its_own_id_and_says_what_it_does() {
    let mut seen = BTreeSet::new();
    for (method, path, operation) in operations(&document()) {
        let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path} has no operationId"));
        assert!(seen.insert(id.to_owned()), "{id} is there twice");
        assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{method} {path} has no summary");
        assert_eq!(operation["tags"].as_array().map(Vec::len), Some(1), "{method} {path}");
    }
    assert!(seen.len() >= 11, "{seen:?}");
}

#[test]
fn every_reference_leads_somewhere() {
    fn references(value: &Value, out: &mut Vec<String>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| references(item, out)),
            Value::Object(fields) => {
                out.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|field| references(field, out));
            }
            _ => {}
        }
    }
    let document = document();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

/// The types that a schema allows.
fn types(document: &Value, schema: &Value) -> BTreeSet<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        return types(document, document.pointer(reference.strip_prefix('#').unwrap()).unwrap());
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        return choices.iter().flat_map(|choice| types(document, choice)).collect();
    }
    schema["type"].as_str().map(str::to_owned).into_iter().collect()
}

/// Clients that are generated from the document send only what it allows.
#[tokio::test]
async fn a_choice_of_a_tool_is_a_word_or_an_object() {
    let document = document();
    let app = TestApp::new().says("hello").reads_tool_calls();
    let parameters = json!({ "type": "object" });
    let function = json!({ "name": "f", "parameters": parameters });
    let of_chats = json!({ "messages": [{ "role": "user", "content": "hello" }], "max_tokens": 4,
                           "tools": [{ "type": "function", "function": function }] });
    let of_responses = json!({ "input": "hello", "max_output_tokens": 4,
                               "tools": [{ "type": "function", "name": "f", "parameters": parameters }] });
    let [named_in_chats, named] = [json!({ "function": { "name": "f" } }), json!({ "name": "f" })];
    for (schema, path, body, named) in [
        ("ChatCompletionRequest", "/v1/chat/completions", of_chats, named_in_chats),
        ("ResponsesRequest", "/v1/responses", of_responses, named),
    ] {
        let parts = document["components"]["schemas"][schema]["allOf"].as_array().unwrap();
        let described = parts.iter().find_map(|part| part["properties"].get("tool_choice")).unwrap();
        assert!(described.to_string().contains("`required`"), "{described}");
        let types = types(&document, described);
        let mut sent = BTreeSet::new();
        let mut named = named;
        named["type"] = json!("function");
        for choice in [json!("auto"), json!("none"), json!("required"), named, Value::Null] {
            let kind = match choice {
                Value::String(_) => "string",
                Value::Object(_) => "object",
                _ => "null",
            };
            sent.insert(kind.to_owned());
            let mut body = body.clone();
            body["tool_choice"] = choice;
            app.post(path, body).await.ok();
        }
        assert_eq!(types, sent, "{schema}");
    }
}
