//! What a person is told of a store of responses that cannot be used.

use std::fs;

use crate::program::{Server, TINY_MODEL, failure, serve_arguments};

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
