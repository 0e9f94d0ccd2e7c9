//! Calls of the control plane that are refused or come amid an update in parts: what becomes of requests, names and the update.

use std::path::Path;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use tito::generation::Finish;

use super::{
    control::{MODEL, settings},
    control_effects::{Server, ask, ended, under_way},
};

async fn posted(server: &Server, path: &str, body: &Value) -> (StatusCode, Value) {
    let (status, answer) = ask(server.router(), &Method::POST, path, "application/json", body.to_string()).await;
    (status, serde_json::from_slice(&answer).unwrap_or_default())
}

async fn done(server: &Server, path: &str, body: Value) -> Value {
    let (status, said) = posted(server, path, &body).await;
    assert_eq!(status, 200, "{path} {body}: {said}");
    said
}

async fn weights(server: &Server) -> Value {
    let (_, said) = ask(server.router(), &Method::GET, "/weight_info", "application/json", String::new()).await;
    serde_json::from_slice(&said).unwrap()
}

/// The weights that the server was started with.
fn model() -> Value {
    json!(Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL))
}

#[tokio::test]
async fn a_call_that_ends_requests_ends_none_where_it_is_refused() {
    // Without adapters.
    let server = Server::of(&settings());
    let running = under_way(&server).await;
    for (path, body) in [
        ("/areal_update_weights", json!({ "model_path": "/nowhere" })),
        ("/areal_update_weights_lora", json!({ "lora_model_path": "/nowhere", "lora_name": "a" })),
        ("/update_weights_from_disk", json!({ "model_path": "/nowhere", "abort_all_requests": true })),
        ("/update_weight_version", json!({ "new_version": "a\nb", "abort_all_requests": true })),
    ] {
        let (status, said) = posted(&server, path, &body).await;
        assert!(status.is_client_error() || status == 501, "{path}: {status} {said}");
    }
    assert_eq!(ended(running).await, Finish::Length);
    for (path, body) in [
        ("/areal_update_weights", json!({ "model_path": model() })),
        ("/update_weights_from_disk", json!({ "model_path": model(), "abort_all_requests": true })),
        ("/update_weight_version", json!({ "new_version": "7", "abort_all_requests": true })),
    ] {
        let running = under_way(&server).await;
        done(&server, path, body).await;
        assert_eq!(ended(running).await, Finish::Abort, "{path}");
    }
}

#[tokio::test]
async fn a_name_that_is_given_amid_an_update_in_parts_is_that_of_the_weights_that_come() {
    let server = Server::new();
    for (end, called) in [(json!({}), "mine"), (json!({ "weight_version": "9" }), "9")] {
        let before = weights(&server).await;
        done(&server, "/start_weight_update", json!({})).await;
        done(&server, "/update_weights", json!({ "update_info": { "weight_dir": model() } })).await;
        let said = done(&server, "/update_weight_version", json!({ "new_version": "mine" })).await;
        assert_eq!(said["message"], "Weight version mine is that of the weights that the update brings");
        assert_eq!(weights(&server).await, before);
        done(&server, "/finish_weight_update", end).await;
        assert_eq!(weights(&server).await["weight_version"], called);
    }
}

#[tokio::test]
async fn a_part_ends_requests_once_the_weights_are_there() {
    let server = Server::new();
    let part = ("/update_weights", json!({ "update_info": { "weight_dir": model() } }));
    let name = ("/update_weight_version", json!({ "new_version": "zz", "abort_all_requests": true }));
    let disk = ("/update_weights_from_disk", json!({ "model_path": model(), "abort_all_requests": true }));
    for (parts, finish) in [
        (vec![&name], Finish::Length),
        (vec![&name, &part], Finish::Abort),
        (vec![&disk], Finish::Abort),
        (vec![&part], Finish::Length),
    ] {
        let running = under_way(&server).await;
        done(&server, "/start_weight_update", json!({})).await;
        for (path, body) in &parts {
            done(&server, path, body.clone()).await;
        }
        let (status, said) = posted(&server, "/finish_weight_update", &json!({})).await;
        assert_eq!(status.is_success(), parts.len() > 1 || parts[0] != &name, "{parts:?}: {said}");
        assert_eq!(ended(running).await, finish, "{parts:?}");
    }
}

#[tokio::test]
async fn an_update_of_its_own_ends_an_update_in_parts() {
    let server = Server::new();
    for (path, body) in [
        ("/update_weights", json!({ "weight_dir": model(), "weight_version": "9" })),
        ("/areal_update_weights", json!({ "model_path": model() })),
        ("/collective_rpc", json!({ "method": "reload_weights", "kwargs": { "weights_path": model() } })),
    ] {
        done(&server, "/start_weight_update", json!({})).await;
        done(&server, "/update_weights", json!({ "update_info": { "weight_dir": model() } })).await;
        let (status, said) = posted(&server, path, &body).await;
        assert_eq!(status, 400, "{path}: {said}");
        assert!(
            said.to_string().contains("an update in parts was active, and this call is none of its parts"),
            "{said}"
        );
        // The end names no weights that lack what was refused.
        let (status, said) = posted(&server, "/finish_weight_update", &json!({ "weight_version": "9" })).await;
        assert!(!status.is_success(), "{said}");
        assert_eq!(weights(&server).await, json!({ "weight_version": "default", "updates": 0 }));
    }
    done(&server, "/update_weights", json!({ "weight_dir": model(), "weight_version": "9" })).await;
    assert_eq!(weights(&server).await, json!({ "weight_version": "9", "updates": 1 }));
}
