//! Calls of the control plane that are refused or come amid an update in parts: what becomes of requests, names and the update.

use std::path::Path;

use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use tito::generation::Finish;
use tower::ServiceExt;

use super::{
    control::{MODEL, norm_file, settings},
    control_effects::{Server, ask, ended, held},
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
    let running = held(&server).await;
    for (path, body) in [
        ("/areal_update_weights", json!({ "model_path": "/nowhere" })),
        ("/areal_update_weights_lora", json!({ "lora_model_path": "/nowhere", "lora_name": "a" })),
        ("/update_weights_from_disk", json!({ "model_path": "/nowhere", "abort_all_requests": true })),
        ("/update_weight_version", json!({ "new_version": "a\nb", "abort_all_requests": true })),
    ] {
        let (status, said) = posted(&server, path, &body).await;
        assert!(status.is_client_error() || status == 501, "{path}: {status} {said}");
    }
    assert_eq!(ended(&server, running).await, Finish::Length);
    for (path, body) in [
        ("/areal_update_weights", json!({ "model_path": model() })),
        ("/update_weights_from_disk", json!({ "model_path": model(), "abort_all_requests": true })),
        ("/update_weight_version", json!({ "new_version": "7", "abort_all_requests": true })),
    ] {
        let running = held(&server).await;
        done(&server, path, body).await;
        assert_eq!(ended(&server, running).await, Finish::Abort, "{path}");
    }
}

#[tokio::test]
async fn a_name_that_is_given_amid_an_update_in_parts_is_that_of_the_weights_that_come() {
    let server = Server::new();
    for end in [json!({}), json!({ "weight_version": "mine" })] {
        let before = weights(&server).await;
        done(&server, "/start_weight_update", json!({})).await;
        done(&server, "/update_weights", json!({ "update_info": { "weight_dir": model() } })).await;
        let said = done(&server, "/update_weight_version", json!({ "new_version": "mine" })).await;
        assert_eq!(said["message"], "Weight version mine is that of the weights that the update brings");
        assert_eq!(weights(&server).await, before);
        done(&server, "/finish_weight_update", end).await;
        assert_eq!(weights(&server).await["weight_version"], "mine");
    }
}

#[tokio::test]
async fn an_update_in_parts_has_no_other_name_than_the_one_that_it_was_given_amid() {
    let server = Server::new();
    let named = |path: &str| (format!("{path}?weight_version=theirs"), norm_file("model.norm.weight", 0.5));
    for (part, end) in [(None, json!({ "weight_version": "theirs" })), (Some(named("/update_weights")), json!({}))] {
        done(&server, "/start_weight_update", json!({})).await;
        done(&server, "/update_weights", json!({ "update_info": { "weight_dir": model() } })).await;
        done(&server, "/update_weight_version", json!({ "new_version": "mine" })).await;
        if let Some((path, file)) = part {
            let (status, said) = ask(server.router(), &Method::POST, &path, "application/octet-stream", file).await;
            assert_eq!(status, 200, "{}", String::from_utf8_lossy(&said));
        }
        let (status, said) = posted(&server, "/finish_weight_update", &end).await;
        assert_eq!(status, 400, "{said}");
        assert!(said.to_string().contains("call the weights `mine` and `theirs`"), "{said}");
        assert_eq!(weights(&server).await, json!({ "weight_version": "default", "updates": 0 }));
    }
}

#[tokio::test]
async fn a_part_ends_requests_once_the_weights_are_there() {
    let server = Server::new();
    let part = ("/update_weights", json!({ "update_info": { "weight_dir": model() } }));
    let name = ("/update_weight_version", json!({ "new_version": "zz", "abort_all_requests": true }));
    let disk = ("/update_weights_from_disk", json!({ "model_path": model(), "abort_all_requests": true }));
    for (start, parts, finish) in [
        ("/start_weight_update", vec![&name], Finish::Length),
        ("/start_weight_update", vec![&name, &part], Finish::Abort),
        ("/begin_weight_update", vec![&disk], Finish::Abort),
        ("/start_weight_update", vec![&part], Finish::Length),
    ] {
        let running = held(&server).await;
        done(&server, start, json!({})).await;
        for (path, body) in &parts {
            done(&server, path, body.clone()).await;
        }
        let (status, said) = posted(&server, "/finish_weight_update", &json!({})).await;
        assert_eq!(status.is_success(), parts.len() > 1 || parts[0] != &name, "{parts:?}: {said}");
        assert_eq!(ended(&server, running).await, finish, "{parts:?}");
    }
}

#[tokio::test]
async fn an_update_of_its_own_ends_an_update_in_parts() {
    let server = Server::new();
    for (path, body) in [
        ("/update_weights", json!({ "weight_dir": model(), "weight_version": "9" })),
        ("/areal_update_weights", json!({ "model_path": model() })),
        ("/update_weights_from_disk", json!({ "model_path": model(), "weight_version": "theirs" })),
        ("/collective_rpc", json!({ "method": "reload_weights", "kwargs": { "weights_path": model() } })),
    ] {
        done(&server, "/start_weight_update", json!({})).await;
        done(&server, "/update_weights", json!({ "update_info": { "weight_dir": model() } })).await;
        let request = Request::builder().method(Method::POST).uri(path).header("content-type", "application/json");
        let answer = server
            .router()
            .clone()
            .oneshot(request.body(axum::body::Body::from(body.to_string())).unwrap())
            .await
            .unwrap();
        // The same call may be done now, and the other update was undone.
        let retry = answer.headers()["x-retry"].to_str().unwrap().to_owned();
        assert_eq!((answer.status().as_u16(), retry.as_str()), (400, "here; done=maybe"), "{path}");
        let said = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let said = String::from_utf8(said.to_vec()).unwrap();
        assert!(said.contains("an update in parts was active, and this call is none of its parts"), "{said}");
        // The end names no weights that lack what was refused.
        let (status, said) = posted(&server, "/finish_weight_update", &json!({ "weight_version": "9" })).await;
        assert!(!status.is_success(), "{said}");
        assert_eq!(weights(&server).await, json!({ "weight_version": "default", "updates": 0 }));
    }
    done(&server, "/update_weights", json!({ "weight_dir": model(), "weight_version": "9" })).await;
    assert_eq!(weights(&server).await, json!({ "weight_version": "9", "updates": 1 }));
}

/// Two trainers that send parts of one update.
#[tokio::test]
async fn parts_of_two_names_are_no_update() {
    let server = Server::new();
    let disk = |version: &str| json!({ "model_path": model(), "weight_version": version });
    for (parts, end) in [
        (vec![disk("mine"), disk("theirs")], json!({ "weight_version": "mine" })),
        (vec![disk("mine"), disk("theirs")], json!({})),
        (vec![disk("theirs")], json!({ "weight_version": "mine" })),
    ] {
        done(&server, "/begin_weight_update", json!({})).await;
        for part in parts {
            done(&server, "/update_weights_from_disk", part).await;
        }
        let (status, said) = posted(&server, "/end_weight_update", &end).await;
        assert_eq!(status, 400, "{said}");
        assert!(said.to_string().contains("call the weights `mine` and `theirs`"), "{said}");
        assert_eq!(weights(&server).await, json!({ "weight_version": "default", "updates": 0 }));
    }
    done(&server, "/begin_weight_update", json!({})).await;
    done(&server, "/update_weights_from_disk", disk("mine")).await;
    // Whoever names the weights anew means all of them.
    done(&server, "/update_weight_version", json!({ "new_version": "renamed" })).await;
    done(&server, "/update_weights_from_disk", json!({ "model_path": model() })).await;
    done(&server, "/end_weight_update", json!({})).await;
    assert_eq!(weights(&server).await["weight_version"], "renamed");
}

/// A copy of the weights that the server was started with, in a directory of a step.
fn step(directory: &tempfile::TempDir, number: u64) -> Value {
    let step = directory.path().join(format!("step_{number}"));
    std::fs::create_dir_all(&step).unwrap();
    let weights = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL).join("model.safetensors");
    std::fs::copy(weights, step.join("model.safetensors")).unwrap();
    json!(step)
}

#[tokio::test]
async fn weights_of_a_step_have_its_number_also_where_they_come_in_parts() {
    let (server, directory) = (Server::new(), tempfile::tempdir().unwrap());
    let (seven, eight) = (step(&directory, 7), step(&directory, 8));
    for (parts, called) in
        [(vec![&seven], "7"), (vec![&seven, &seven], "7"), (vec![&eight, &seven], "3"), (vec![&seven, &model()], "4")]
    {
        done(&server, "/start_weight_update", json!({})).await;
        for part in parts {
            done(&server, "/update_weights", json!({ "update_info": { "weight_dir": part } })).await;
        }
        done(&server, "/finish_weight_update", json!({})).await;
        assert_eq!(weights(&server).await["weight_version"], called);
    }
    done(&server, "/begin_weight_update", json!({})).await;
    done(&server, "/update_weights_from_disk", json!({ "model_path": eight })).await;
    done(&server, "/end_weight_update", json!({})).await;
    assert_eq!(weights(&server).await["weight_version"], "8");
}

#[tokio::test]
async fn a_sleep_says_how_deep_the_server_sleeps() {
    let server = Server::new();
    for (asked, sleeps) in [(0, 0), (1, 1), (0, 1), (2, 2), (1, 2)] {
        let said = done(&server, &format!("/sleep?level={asked}"), Value::Null).await;
        assert_eq!(said, json!({ "status": "sleeping", "level": sleeps }));
    }
}

#[tokio::test]
async fn the_weights_of_the_start_are_read_again_from_where_they_lie() {
    let server = Server::new().with_weights(&Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL));
    done(&server, "/sleep?level=2", Value::Null).await;
    done(&server, "/wake_up", Value::Null).await;
    done(&server, "/collective_rpc", json!({ "method": "reload_weights" })).await;
    assert_eq!(weights(&server).await["updates"], 1);
}

/// Weights that were lost may come back in several updates, and each says what is still to be sent.
#[tokio::test]
async fn updates_of_lost_weights_say_in_every_dialect_what_is_still_to_be_sent() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("model.safetensors"), norm_file("model.norm.weight", 1.0)).unwrap();
    let norm = directory.path();
    let server = Server::of(&settings());
    let tensors = done(&server, "/update_weights", json!({ "weight_dir": model() })).await["tensors_of_model"].clone();
    let lacking = format!("{} tensors have no weights", tensors.as_u64().unwrap() - 1);
    let rpc = json!({ "method": "reload_weights", "kwargs": { "weights_path": norm } });
    for calls in [
        vec![("/update_weights", json!({ "weight_dir": norm }))],
        vec![("/update_weights_from_disk", json!({ "model_path": norm }))],
        vec![("/areal_update_weights", json!({ "model_path": norm }))],
        vec![("/collective_rpc", rpc)],
        vec![
            ("/start_weight_update", json!({})),
            ("/update_weights", json!({ "update_info": { "weight_dir": norm } })),
            ("/finish_weight_update", json!({})),
        ],
        vec![
            ("/begin_weight_update", json!({})),
            ("/update_weights_from_disk", json!({ "model_path": norm })),
            ("/end_weight_update", json!({})),
        ],
    ] {
        done(&server, "/weight_checker", json!({ "action": "reset" })).await;
        for (index, (path, body)) in calls.iter().enumerate() {
            let said = done(&server, path, body.clone()).await;
            let says = said["message"].as_str().is_some_and(|message| message.contains(&lacking));
            assert_eq!(says, index + 1 == calls.len(), "{path}: {said}");
        }
        let (status, _) = posted(&server, "/get_weights_by_name", &json!({ "name": "model.norm.weight" })).await;
        assert_ne!(status, 200);
        let said = done(&server, "/update_weights", json!({ "weight_dir": model() })).await;
        assert_eq!(said.get("message"), None, "{said}");
    }
}
