//! `/v1/trajectories`: what filters let through by the words of requests, and numbers as clients sent them.

use std::{sync::Arc, time::Duration};

use axum::http::HeaderValue;
use serde_json::{Value, json};
use tito::store::MemoryStore;

use super::trajectories::{POLICY, capture, user};
use crate::it::app::{MODEL, TestApp, posted};

const PATH: &str = "/v1/trajectories";

fn capturing() -> TestApp {
    let store = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX));
    TestApp::new().captures(capture(store, POLICY))
}

async fn chat(app: &TestApp, more: &Value) -> Value {
    let mut body = json!({ "messages": [user("Hi")], "max_tokens": 5 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    app.post("/v1/chat/completions", body).await.ok()
}

#[tokio::test]
async fn every_served_name_of_the_model_finds_its_turns() {
    let app = capturing().names(&[MODEL, "other"]);
    chat(&app, &json!({ "model": "other" })).await;
    chat(&app, &json!({ "model": MODEL })).await;
    for (name, count) in [(MODEL, 2), ("other", 2), ("unknown", 0)] {
        let listed = app.get(&format!("{PATH}?model={name}")).await.ok();
        assert_eq!(listed["data"].as_array().unwrap().len(), count, "{name}");
        let exported = app.get(&format!("{PATH}/export?model={name}")).await;
        assert_eq!(exported.text.lines().count(), count, "{name}");
    }
}

/// Numbers whose nearest double is found only by those who look at all of their digits.
#[tokio::test]
async fn numbers_are_those_that_clients_sent() {
    let app = capturing();
    for sent in ["1.9000000000000001", "0.30000000000000004"] {
        let number: f64 = sent.parse().unwrap();
        chat(&app, &json!({ "temperature": number, "session_id": sent })).await;
        let listed = app.get(&format!("{PATH}?session={sent}")).await.ok();
        let path = format!("{PATH}/{}", listed["data"][0]["id"].as_str().unwrap());
        let tree = app.get(&path).await.text;
        assert!(tree.contains(&format!("\"temperature\":{sent},")), "{sent}: {tree}");
        let noted = app.post(&format!("{path}/reward"), json!({ "reward": number })).await.text;
        assert!(noted.contains(&format!("\"reward\":{sent},")), "{sent}: {noted}");
    }
}

/// vLLM gives a batch one id, and each conversation that id with its number.
#[tokio::test]
async fn turns_of_a_batch_are_found_by_the_id_of_its_answer() {
    let app = capturing();
    for (header, more) in [
        (None, json!({})),
        (None, json!({ "request_id": "" })),
        (None, json!({ "request_id": "B" })),
        (Some("H"), json!({})),
    ] {
        let mut body = json!({ "messages": [[user("c")], [user("d")], [user("e")]], "max_tokens": 2 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut request = posted("/v1/chat/completions/batch", body.to_string());
        if let Some(id) = header {
            request.headers_mut().insert("x-request-id", HeaderValue::from_static(id));
        }
        let answer = app.request(request).await.ok();
        let id = answer["id"].as_str().unwrap();
        let mut found = Vec::new();
        for listed in app.get(PATH).await.ok()["data"].as_array().unwrap() {
            let tree = app.get(&format!("{PATH}/{}", listed["id"].as_str().unwrap())).await.ok();
            let turns = tree["turns"].as_array().unwrap().iter().map(|turn| turn["request_ids"].clone());
            found.extend(turns.filter(|ids| ids[0] == *id));
        }
        found.sort_by_key(ToString::to_string);
        assert_eq!(found, [0, 1, 2].map(|index| json!([id, format!("{id}_{index}")])), "{more}");
    }
}
