//! What every port refuses, bounds and ends, whatever it serves.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Command, Stdio},
    time::Duration,
};

use tokio::io::AsyncReadExt;

use crate::{
    connections::{answer_over, fixture},
    program::{Server, TINY_MODEL, serve_arguments, tito},
};

/// The longest that an answer may take; nothing here waits for a model.
const PATIENCE: Duration = Duration::from_mins(4);

/// The answer to a request on a connection of its own.
pub(crate) fn answer(address: SocketAddr, request: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).unwrap();
    text
}

fn plain(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

#[test]
fn methods_that_nobody_knows_leave_one_series_and_no_text() {
    let server = Server::start(&["--api-key", "k", "--admin-port", "0"]);
    for address in [server.address, server.admin()] {
        for number in 0..40 {
            let method = format!("EVIL{number}");
            for path in ["/docs", "/health", "/pause"] {
                let refused = answer(address, &plain(&method, path));
                assert!(refused.starts_with("HTTP/1.1 4"), "{refused}");
            }
        }
        let refused = answer(address, &plain(&"EVIL".repeat(500), "/docs"));
        assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
        assert!(refused.contains("the method of the request is longer than 32 bytes"), "{refused}");
    }
    let metrics = server.get("/metrics");
    assert!(!metrics.contains("EVIL"), "{metrics}");
    assert!(metrics.contains("handler=\"/docs\",method=\"other\",status=\"4xx\"} 40.0"), "{metrics}");
}

/// A server that may open 320 files.
fn limited(more: &[&str]) -> Server {
    let mut limited = Command::new("sh");
    let tito = tito(&[]);
    limited.args(["-c", "ulimit -n 320; exec \"$0\" \"$@\""]).arg(tito.get_program());
    limited.args(serve_arguments(TINY_MODEL, more)).env("HF_HUB_OFFLINE", "1").stdin(Stdio::null());
    Server::spawn(&mut limited)
}

#[test]
fn connections_to_the_port_of_the_control_plane_leave_the_main_one_its_own() {
    // Silent, begun, and with a request whose body does not come.
    let unfinished =
        "POST /pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n";
    for (sent, is_silent) in [("", true), ("POST /pau", true), (unfinished, false)] {
        let server = limited(&["--admin-port", "0"]);
        let admin = server.admin();
        let held: Vec<TcpStream> = (0..330)
            .map(|_| {
                let mut connection = TcpStream::connect(admin).unwrap();
                connection.write_all(sent.as_bytes()).unwrap();
                connection
            })
            .collect();
        assert!(answer(server.address, &plain("GET", "/health")).starts_with("HTTP/1.1 200"), "{sent:?}");
        if is_silent {
            assert!(answer(admin, &plain("GET", "/health")).starts_with("HTTP/1.1 200"), "{sent:?}");
        }
        drop(held);
        let (status, log) = server.stop("-TERM");
        assert_eq!(status.code(), Some(0), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_too_many_tls_handshakes_the_oldest_goes_and_a_new_client_is_served() {
    let [certificate, key] = ["server.pem", "server.key"].map(fixture);
    let server = limited(&["--ssl-certfile", &certificate, "--ssl-keyfile", &key, "--uvicorn-log-level", "debug"]);
    // An eighth of the 192 connections that 320 files leave room for, and one more.
    let mut silent = Vec::new();
    for _ in 0..25 {
        silent.push(tokio::net::TcpStream::connect(server.address).await.unwrap());
    }
    let mut oldest = silent.remove(0);
    let ended = oldest.read(&mut [0]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    let new = tokio::net::TcpStream::connect(server.address).await.unwrap();
    for connection in [new, silent.pop().unwrap()] {
        let reply = answer_over(connection, false, "/health").await.unwrap();
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    }
    let (status, log) = server.stop("-TERM");
    assert_eq!(status.code(), Some(0), "{log}");
    assert_eq!(log.matches("the oldest is ended").count(), 2, "{log}");
}

#[test]
fn every_port_logs_who_asked() {
    let server = Server::start(&["--admin-port", "0"]);
    assert!(answer(server.admin(), &plain("POST", "/resume")).starts_with("HTTP/1.1 "));
    let (_, log) = server.stop("-TERM");
    let line = log.lines().find(|line| line.contains("POST /resume")).expect(&log);
    assert!(line.contains("127.0.0.1:"), "{line}");
}

/// A request with a body of two bytes.
fn posted(path: &str, headers: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: 2\r\n{headers}\r\n{{}}")
}

#[test]
fn no_page_of_another_origin_asks_a_control_plane_without_a_key() {
    let json = "Content-Type: application/json\r\n";
    let page = |more: &str| format!("Host: localhost\r\n{json}{more}");
    let refused = [
        ("403", "Host: evil.example\r\nContent-Type: application/json\r\n".to_owned()),
        ("403", page("Origin: http://evil.example\r\n")),
        ("403", page("Origin: null\r\n")),
        ("403", page("Sec-Fetch-Site: cross-site\r\n")),
        ("403", page("Sec-Fetch-Site: same-site\r\n")),
        ("415", "Host: localhost\r\nContent-Type: text/plain\r\n".to_owned()),
        ("415", "Host: localhost\r\n".to_owned()),
    ];
    let answered = [
        format!("Host: 127.0.0.1\r\n{json}"),
        format!("Host: tito-0.svc:9000\r\n{json}"),
        "Host: localhost\r\nContent-Type: application/octet-stream\r\n".to_owned(),
    ];
    let allowed = ["--admin-allowed-hosts", "tito-0.svc"];
    let own = Server::start(&[&["--admin-port", "0"], &allowed[..]].concat());
    let main = Server::start(&[&["--admin-on-main-port", "--insecure-admin"], &allowed[..]].concat());
    for address in [own.admin(), main.address] {
        for (status, headers) in &refused {
            let text = answer(address, &posted("/pause", headers));
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{headers:?}: {text}");
            assert!(text.contains("has no key"), "{text}");
        }
        for headers in &answered {
            let text = answer(address, &posted("/pause", headers));
            assert!(!text.contains("has no key"), "{headers:?}: {text}");
        }
        assert!(!answer(address, &plain("POST", "/pause")).contains("has no key"));
    }
    // Of the API, nobody asked that.
    let headers = "Host: tito.example\r\nContent-Type: application/json\r\n";
    assert!(!answer(main.address, &posted("/tokenize", headers)).starts_with("HTTP/1.1 403"));
    let keyed = Server::start(&["--admin-port", "0", "--admin-api-key", "k"]);
    for (_, headers) in &refused {
        let text = answer(keyed.admin(), &posted("/pause", &format!("{headers}Authorization: Bearer k\r\n")));
        assert!(!text.contains("has no key"), "{headers:?}: {text}");
    }
}
