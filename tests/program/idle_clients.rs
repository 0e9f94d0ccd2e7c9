//! Clients that only sit there: they hold up nobody else.

use std::{
    io::Write,
    net::TcpStream,
    process::{Command, Stdio},
};

use serde_json::json;

use crate::program::{Server, TINY_MODEL, serve_arguments, tito};

#[test]
fn more_idle_connections_than_the_system_allows_stop_nobody() {
    let mut limited = Command::new("sh");
    let tito = tito(&[]);
    limited.args(["-c", "ulimit -n 200; exec \"$0\" \"$@\""]).arg(tito.get_program());
    limited.args(serve_arguments(TINY_MODEL, &[])).env("HF_HUB_OFFLINE", "1").stdin(Stdio::null());
    let server = Server::spawn(&mut limited);
    // Some of them have begun to ask.
    let idle: Vec<TcpStream> = (0..400)
        .map(|number| {
            let mut connection = TcpStream::connect(server.address).unwrap();
            if number % 2 == 0 {
                connection.write_all(b"POST /v1/comp").unwrap();
            }
            connection
        })
        .collect();
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));
    let answer = server.post("/v1/completions", &json!({ "prompt": "hello", "max_tokens": 3, "ignore_eos": true }));
    assert_eq!(answer["usage"]["completion_tokens"], 3);
    drop(idle);
    assert_eq!(server.stop("-TERM").0.code(), Some(0));
}
