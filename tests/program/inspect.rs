//! `tito inspect`: a capture file, looked at.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::program::{Server, TINY_MODEL, failure, tito};

/// The body of an answer.
fn body(answer: &str) -> &str {
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1
}

fn inspecting(file: &str, model: Option<&str>) -> Server {
    let arguments: Vec<&str> = ["inspect", file].into_iter().chain(model).chain(["--port", "0"]).collect();
    let server = Server::spawn(&mut tito(&arguments));
    let (_, rest) = server.banner.rsplit_once('/').unwrap();
    assert_eq!(rest, "inspect");
    server
}

fn captured(file: &Path, signal: &str) {
    let server = Server::start(&["--capture", file.to_str().unwrap()]);
    for content in ["Hi", "Ho"] {
        let messages = json!([{ "role": "user", "content": content }]);
        server.post("/v1/chat/completions", &json!({ "messages": messages, "max_tokens": 4 }));
    }
    let refused = failure(&["inspect", file.to_str().unwrap(), "--port", "0"]);
    assert!(refused.ends_with("is in use by another process"), "{refused}");
    server.stop(signal);
}

#[test]
fn a_capture_file_is_shown_and_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    // One that was closed, and one whose server was killed.
    for signal in ["-TERM", "-KILL"] {
        let path = directory.path().join(format!("capture{signal}.redb"));
        let file = path.to_str().unwrap();
        captured(&path, signal);
        let before = fs::read(&path).unwrap();
        for model in [Some(TINY_MODEL), None] {
            let server = inspecting(file, model);
            assert!(body(&server.get("/inspect")).contains("inspect/main.js"));
            let about: Value = serde_json::from_str(body(&server.get("/inspect/about.json"))).unwrap();
            assert_eq!(about, json!({ "read_only": true, "has_texts": model.is_some() }));
            let list: Value = serde_json::from_str(body(&server.get("/v1/trajectories"))).unwrap();
            assert_eq!(list["data"].as_array().unwrap().len(), 2);
            let id = list["data"][1]["id"].as_str().unwrap();
            let tree: Value = serde_json::from_str(body(&server.get(&format!("/v1/trajectories/{id}")))).unwrap();
            let turn = tree["turns"][0]["id"].as_str().unwrap();
            let tokens = server.get(&format!("/v1/trajectories/{id}/turns/{turn}/tokens"));
            let tokens: Value = serde_json::from_str(body(&tokens)).unwrap();
            assert_eq!(tokens["drift"].is_null(), model.is_none());
            assert_eq!(tokens["texts"].as_object().unwrap().is_empty(), model.is_none());
            let origin = if model.is_some() { "template" } else { "prompt" };
            assert_eq!(tokens["spans"][0]["origin"], origin);
            let lines = server.get("/v1/trajectories/export");
            assert_eq!(body(&lines).lines().filter(|line| line.contains("loss_mask")).count(), 2);
            // Nothing can be changed or generated.
            let reward = server.post(&format!("/v1/trajectories/{id}/reward"), &json!({ "reward": 1 }));
            assert!(reward["error"].is_object() || reward["detail"].is_string(), "{reward}");
            for what in ["replay", "rescore"] {
                let again = server.post(&format!("/v1/trajectories/{id}/turns/{turn}/{what}"), &json!({}));
                assert_eq!(again, json!({ "detail": "Not Found" }), "{what}");
            }
            assert!(!server.get("/v1/models").starts_with("HTTP/1.1 200"));
            let (status, log) = server.stop("-TERM");
            assert!(status.success() && !log.contains("panicked"), "{log}");
        }
        assert!(before == fs::read(&path).unwrap(), "the file was changed");
    }
}

#[test]
fn the_copy_of_a_file_that_was_left_open_is_gone_however_the_process_ends() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("capture.redb");
    captured(&file, "-KILL");
    for signal in ["-TERM", "-KILL"] {
        let temporary = tempfile::tempdir().unwrap();
        let arguments = ["inspect", file.to_str().unwrap(), "--port", "0"];
        let server = Server::spawn(tito(&arguments).env("TMPDIR", temporary.path()));
        assert!(body(&server.get("/v1/trajectories")).contains("\"data\""));
        server.stop(signal);
        let left: Vec<_> = fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{signal} leaves {left:?}");
    }
}

#[test]
fn a_file_that_is_no_capture_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("capture.redb");
    let file = path.to_str().unwrap();
    let refused = |file: &str| failure(&["inspect", file, "--port", "0"]);
    assert!(refused(file).contains("cannot be opened: No such file"));
    assert!(!path.exists(), "none is made");
    fs::write(&path, "not a database").unwrap();
    assert!(refused(file).ends_with(&format!("{file} is not a trajectory store")));
    fs::remove_file(&path).unwrap();
    drop(Server::start(&["--response-store", file]));
    assert!(refused(file).ends_with(&format!("{file} is not a trajectory store")));
    let line = failure(&["inspect", file, "no/such/model", "--port", "0"]);
    assert!(line.contains("trajectory store"), "{line}");
}
