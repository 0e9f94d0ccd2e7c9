//! SGLang's calls of the control plane, as its trainers order them.

use std::path::Path;

use axum::http::{Method, StatusCode};
use futures::StreamExt;
use serde_json::{Value, json};

use super::{
    control::MODEL,
    control_effects::{Server, ask},
};

async fn posted(server: &Server, path: &str, body: &Value) -> (StatusCode, Value) {
    let (status, answer) = ask(server.router(), &Method::POST, path, "application/json", body.to_string()).await;
    (status, serde_json::from_slice(&answer).unwrap_or_default())
}

async fn looked(server: &Server, path: &str) -> (StatusCode, Value) {
    let (status, answer) = ask(server.router(), &Method::GET, path, "application/json", String::new()).await;
    (status, serde_json::from_slice(&answer).unwrap_or_default())
}

async fn done(server: &Server, path: &str, body: Value) -> Value {
    let (status, said) = posted(server, path, &body).await;
    assert_eq!(status, 200, "{path} {body}: {said}");
    said
}

async fn is_asleep(server: &Server) -> bool {
    looked(server, "/is_sleeping").await.1["is_sleeping"] == true
}

/// The weights that the server was started with.
fn model() -> Value {
    json!(Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL))
}

/// What a trainer releases, and in which order it resumes it. verl: both, then the weights, then keys and values. slime and
/// miles: all or some, then the weights, then the rest. SkyRL and verl with LoRA: keys and values only.
const ORDERS: [(&[&str], &[&[&str]]); 8] = [
    (&["weights"], &[&["weights"]]),
    (&["kv_cache"], &[&["kv_cache"]]),
    (&["kv_cache", "weights"], &[&["weights"], &["kv_cache"]]),
    (&["kv_cache", "weights"], &[&["kv_cache"], &["weights"]]),
    (&["kv_cache", "weights", "cuda_graph"], &[&["weights"], &["cuda_graph", "kv_cache"]]),
    (&["weights"], &[&["kv_cache", "cuda_graph"], &["weights"]]),
    (&["kv_cache"], &[&["weights"], &["kv_cache"]]),
    (&[], &[&["weights"], &["cuda_graph", "kv_cache"]]),
];

/// Releases these, and resumes them in this order.
async fn release_and_resume((released, order): (&[&str], &[&[&str]])) {
    let server = Server::new();
    let checksums = async || done(&server, "/weight_checker", json!({ "action": "checksum" })).await;
    let before = checksums().await;
    assert_eq!(done(&server, "/release_memory_occupation", json!({ "tags": released })).await, Value::Null);
    for (done_before, tags) in order.iter().enumerate() {
        assert!(is_asleep(&server).await, "{released:?}, {done_before} of {order:?}");
        assert_eq!(done(&server, "/resume_memory_occupation", json!({ "tags": tags })).await, Value::Null);
    }
    assert!(!is_asleep(&server).await, "{released:?}, {order:?}");
    let lost = released.contains(&"weights");
    let health = looked(&server, "/health_generate").await.0;
    assert_eq!(health, if lost { 503 } else { 200 }, "{released:?}");
    if lost {
        done(&server, "/update_weights_from_disk", json!({ "model_path": model() })).await;
        assert_eq!(looked(&server, "/health_generate").await.0, 200);
    }
    assert_eq!(checksums().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tag_is_released_and_resumed_by_itself_and_requests_come_back_once_all_is_resumed() {
    futures::stream::iter(ORDERS).map(release_and_resume).buffered(4).collect::<()>().await;
}

#[tokio::test]
async fn weights_may_come_between_the_two_halves_of_what_is_resumed() {
    let server = Server::new();
    done(&server, "/release_memory_occupation", json!({ "tags": ["kv_cache", "weights"] })).await;
    let (status, said) = posted(&server, "/update_weights_from_disk", &json!({ "model_path": model() })).await;
    assert_eq!((status.as_u16(), &said["success"]), (400, &json!(false)), "{said}");
    done(&server, "/resume_memory_occupation", json!({ "tags": ["weights"] })).await;
    done(&server, "/update_weights_from_disk", json!({ "model_path": model(), "weight_version": "1" })).await;
    assert!(is_asleep(&server).await);
    done(&server, "/resume_memory_occupation", json!({ "tags": ["kv_cache"] })).await;
    assert_eq!(looked(&server, "/health_generate").await.0, 200);
    assert_eq!(looked(&server, "/get_weight_version").await.1["weight_version"], "1");
}

#[tokio::test]
async fn a_way_to_load_weights_that_is_not_taken_is_refused_by_name() {
    let server = Server::new();
    for format in [json!(null), json!("auto"), json!("safetensors")] {
        done(&server, "/update_weights_from_disk", json!({ "model_path": model(), "load_format": format })).await;
    }
    for format in [json!("dummy"), json!("pt"), json!("Auto"), json!(""), json!(["auto"])] {
        let body = json!({ "model_path": model(), "load_format": format, "weight_version": "9" });
        let (status, said) = posted(&server, "/update_weights_from_disk", &body).await;
        assert_eq!((status.as_u16(), &said["error"]["param"]), (400, &json!("body.load_format")), "{format}: {said}");
    }
    assert_ne!(looked(&server, "/get_weight_version").await.1["weight_version"], "9");
}
