//! The session of a request that is no conversation: in its header or in its body, as a chat's.

use std::{sync::Arc, time::Duration};

use axum::http::{Request, header};
use serde_json::{Value, json};
use tito::{
    store::MemoryStore,
    trajectory::{CapturePolicy, Trajectories},
    turn::Capture,
};

use crate::it::app::{Answer, MODEL, TestApp};

fn capturing() -> TestApp {
    let store = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX));
    let trajectories =
        Trajectories::open(store, CapturePolicy { bytes: 1 << 24, ttl: None, texts: true, images: true }).unwrap();
    let trajectories = Arc::new(trajectories);
    TestApp::new().captures(Capture { trajectories, model: MODEL.into(), process: "test".into() })
}

/// Each endpoint with a body that it takes.
fn bodies(app: &TestApp) -> [(&'static str, Value); 4] {
    let ids = app.ids("hello world");
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    [
        ("/v1/messages", json!({ "model": MODEL, "messages": messages, "max_tokens": 2 })),
        ("/v1/chat/completions", json!({ "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 2 })),
        ("/v1/completions", json!({ "prompt": "hello world", "max_tokens": 2 })),
        ("/inference/v1/generate", json!({ "token_ids": ids, "sampling_params": { "max_tokens": 2 } })),
    ]
}

async fn ask(app: &TestApp, path: &str, mut body: Value, more: &Value, session: Option<&[u8]>) -> Answer {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    if let Some(session) = session {
        request = request.header("X-Session-ID", session);
    }
    app.request(request.body(body.to_string().into()).unwrap()).await
}

/// The session of the turn that a request becomes.
async fn captured(path: &str, more: &Value, header: Option<&str>) -> Value {
    let app = capturing();
    let (_, body) = bodies(&app).into_iter().find(|(of, _)| *of == path).unwrap();
    let answer = ask(&app, path, body, more, header.map(str::as_bytes)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    app.get("/v1/trajectories").await.ok()["data"][0]["session"].clone()
}

#[tokio::test]
async fn a_session_in_the_body_is_read_everywhere() {
    for path in ["/v1/chat/completions", "/v1/completions", "/inference/v1/generate"] {
        for stream in [false, true] {
            let told = async |mut fields: Value, header: Option<&str>| {
                fields["stream"] = json!(stream);
                captured(path, &fields, header).await
            };
            assert_eq!(told(json!({}), None).await, Value::Null, "{path}");
            assert_eq!(told(json!({ "session_id": "a" }), None).await, "a", "{path}");
            assert_eq!(told(json!({ "prompt_cache_key": "b" }), None).await, "b", "{path}");
            assert_eq!(told(json!({ "session_id": "a", "prompt_cache_key": "b" }), None).await, "a", "{path}");
            assert_eq!(told(json!({ "session_id": "a" }), Some("h")).await, "h", "{path}");
            // An empty name is none.
            assert_eq!(told(json!({ "session_id": "", "prompt_cache_key": "b" }), Some("")).await, "b", "{path}");
            assert_eq!(
                told(json!({ "session_id": null, "prompt_cache_key": null }), None).await,
                Value::Null,
                "{path}"
            );
        }
    }
    for path in ["/v1/chat/completions", "/v1/completions", "/v1/messages"] {
        let arguments = json!({ "vllm_xargs": { "session_id": "x" }, "prompt_cache_key": "b" });
        assert_eq!(captured(path, &arguments, None).await, "x", "{path}");
    }
}

#[tokio::test]
async fn turns_of_a_session_are_one_trajectory_whatever_endpoint_they_came_by() {
    let app = capturing();
    for (path, body) in bodies(&app) {
        ask(&app, path, body, &json!({ "session_id": "a" }), None).await.ok();
    }
    let listed = app.get("/v1/trajectories?session=a").await.ok();
    assert_eq!((listed["data"].as_array().unwrap().len(), &listed["data"][0]["turn_count"]), (1, &json!(4)));
}

#[tokio::test]
async fn a_session_that_is_no_text_is_refused() {
    let app = capturing();
    for (path, body) in bodies(&app) {
        // Anthropic's API has nothing like `prompt_cache_key`.
        let fields = if path == "/v1/messages" { &["session_id"][..] } else { &["session_id", "prompt_cache_key"] };
        for field in fields {
            let mut named = json!({});
            named[*field] = json!(5);
            let answer = ask(&app, path, body.clone(), &named, None).await;
            assert_eq!(answer.status, 400, "{path} {field} {}", answer.text);
            assert!(answer.text.contains(field) || answer.text.contains("expected a string"), "{path} {}", answer.text);
        }
        let answer = ask(&app, path, body, &json!({}), Some(b"\xff")).await;
        assert_eq!(answer.status, 400, "{path}");
        // Errors of Anthropic's API have no field.
        assert!(path == "/v1/messages" || answer.error()["param"] == "x-session-id", "{path} {}", answer.text);
    }
    assert_eq!(app.get("/v1/trajectories").await.ok()["data"], json!([]));
}

/// What comes of scoring a prompt is no turn: the client is told of no token.
#[tokio::test]
async fn a_prompt_that_is_only_scored_is_not_captured() {
    let app = capturing();
    let none = json!({ "max_new_tokens": 0 });
    let scored = [
        ("/generate", json!({ "text": "hello world", "sampling_params": none, "return_logprob": true })),
        ("/v1/completions", json!({ "prompt": "hello world", "max_tokens": 0, "echo": true, "logprobs": 0 })),
    ];
    for (path, body) in scored {
        for stream in [false, true] {
            let answer = ask(&app, path, body.clone(), &json!({ "stream": stream, "session_id": "s" }), None).await;
            assert_eq!(answer.status, 200, "{path} {}", answer.text);
        }
    }
    assert_eq!(app.get("/v1/trajectories").await.ok()["data"], json!([]));
    // Beside prompts that are sampled from, too.
    let params = json!([{ "max_new_tokens": 2 }, none, { "max_new_tokens": 3 }]);
    let body = json!({ "text": ["hello", "world", "you"], "sampling_params": params });
    let answers = ask(&app, "/generate", body, &json!({}), None).await.ok();
    let turns = app.get("/v1/trajectories").await.ok()["data"].as_array().unwrap().len();
    assert_eq!((answers[1]["output_ids"].as_array().unwrap().len(), turns), (0, 2));
    let exported = app.get("/v1/trajectories/export?format=jsonl&allow_raw=true").await;
    for answer in [&answers[0], &answers[2]] {
        let ids = answer["output_ids"].to_string();
        assert!(exported.text.contains(&ids[1..ids.len() - 1]), "{ids} in {}", exported.text);
    }
}
