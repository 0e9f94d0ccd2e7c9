//! What a person is told of a store that cannot be used, or not be written any more.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::program::{Server, TINY_MODEL, failure, serve_arguments, tito};

#[test]
fn a_server_says_what_is_wrong_with_its_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("responses.redb");
    let file = path.to_str().unwrap();
    let arguments = |file| serve_arguments(TINY_MODEL, &["--response-store", file]);
    let server = Server::start(&["--response-store", file]);
    let line = failure(&arguments(file));
    assert!(line.ends_with(&format!("the response store {file} is in use by another process")), "{line}");
    drop(server);
    drop(Server::start(&["--response-store", file, "--response-store-size", "2M"]));
    fs::write(&path, "not a database").unwrap();
    assert!(failure(&arguments(file)).ends_with(&format!("{file} is not a response store")));
    let nowhere = directory.path().join("nowhere/at/all");
    let line = failure(&arguments(nowhere.to_str().unwrap()));
    assert!(line.contains("cannot be opened: No such file"), "{line}");
}

/// A server whose files may have 2 MB, as on a disk that is full then.
fn confined(flags: &[&str]) -> Server {
    let mut confined = Command::new("sh");
    let tito = tito(&[]);
    confined.args(["-c", "ulimit -f 4000; exec \"$0\" \"$@\""]).arg(tito.get_program());
    confined.args(serve_arguments(TINY_MODEL, flags)).env("HF_HUB_OFFLINE", "1").stdin(Stdio::null());
    Server::spawn(&mut confined)
}

/// Asks until something does not fit any more: what was answered before that, and what is said then.
fn filled(server: &Server, path: &str, input: &str) -> (Vec<Value>, String) {
    let mut answers = Vec::new();
    for number in 0..1000 {
        let text = format!("{number} ").repeat(300);
        let body =
            json!({ input: if input == "input" { json!(text) } else { json!([{ "role": "user", "content": text }]) } });
        let answer = server.ask(path, &body);
        let text = answer.split_once("\r\n\r\n").unwrap().1;
        if !answer.starts_with("HTTP/1.1 200") {
            assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
            return (answers, text.to_owned());
        }
        answers.push(serde_json::from_str(text).unwrap());
    }
    panic!("the store takes everything");
}

fn listed(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn a_store_that_may_not_grow_says_which_it_is_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| -> String { Path::new(directory.path()).join(name).to_str().unwrap().to_owned() };
    let (capture, responses) = (file("capture.redb"), file("responses.redb"));
    for (flags, path, input, [own, other]) in [
        (["--capture", &capture], "/v1/chat/completions", "messages", ["trajectory", "response"]),
        (["--response-store", &responses], "/v1/responses", "input", ["response", "trajectory"]),
    ] {
        let server = confined(&flags);
        let (kept, refusal) = filled(&server, path, input);
        assert!(refusal.contains(&format!("the disk of the {own} store is full")), "{refusal}");
        assert!(server.get("/health").starts_with("HTTP/1.1 200"));
        let (status, log) = server.stop("-TERM");
        assert_eq!(status.code(), Some(0), "{log}");
        let errors: Vec<&str> = log.lines().filter(|line| line.contains(" ERROR ")).collect();
        assert!(!errors.is_empty() && !log.contains("panicked"), "{log}");
        assert!(!errors.iter().any(|line| line.contains(&format!("the {other} store"))), "{errors:?}");
        let server = Server::start(&flags);
        if own == "trajectory" {
            assert_eq!(
                listed(&server.get("/v1/trajectories?limit=1000"))["data"].as_array().unwrap().len(),
                kept.len()
            );
        }
        for response in kept.iter().filter(|_| own == "response") {
            let id = response["id"].as_str().unwrap();
            assert_eq!(&listed(&server.get(&format!("/v1/responses/{id}")))["output"], &response["output"]);
        }
    }
}

/// The second start has the tokenizer and the template of the first one, and reads calls: what says so must not differ from
/// process to process.
#[test]
fn a_file_is_continued_from_its_ids_with_the_template_that_made_them() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("responses.redb");
    let flags =
        ["--response-store", file.to_str().unwrap(), "--enable-auto-tool-choice", "--tool-call-parser", "hermes"];
    let other = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}";
    let turn = |server: &Server, previous: &Value| {
        let body = json!({ "input": "Hi", "previous_response_id": previous, "max_output_tokens": 2,
            "return_token_continuity": true });
        server.post("/v1/responses", &body)
    };
    let first = turn(&Server::start(&flags), &Value::Null);
    for (more, outcome, reason) in
        [(vec![], "exact", Value::Null), (vec!["--chat-template", other], "retokenized", json!("context_changed"))]
    {
        let next = turn(&Server::start(&[&flags[..], &more].concat()), &first["id"]);
        let verdict = &next["token_continuity"];
        assert_eq!((&verdict["outcome"], &verdict["reason"]), (&json!(outcome), &reason), "{next}");
    }
}
