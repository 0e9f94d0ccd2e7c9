//! HTTP/2 without TLS, as a client asks that knows it before: who is refused, and who is hung up on.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use axum::http::Request;

use crate::program::{Server, tito};

/// The longest that a write may wait.
const PATIENCE: Duration = Duration::from_mins(4);
/// Many more bytes than a server takes that counts what it is sent.
const MOST_SENT: usize = 64 << 20;

/// The status of a request on an HTTP/2 connection of its own: `uri` is its `:authority` and its path.
async fn status_over_http2(address: SocketAddr, method: &str, uri: &str, host: Option<&str>) -> u16 {
    let connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(connection).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::builder().method(method).uri(uri);
    let request = host.into_iter().fold(request, |request, host| request.header("host", host));
    let (answer, _) = client.send_request(request.body(()).unwrap(), true).unwrap();
    let status = answer.await.unwrap().status().as_u16();
    connection.abort();
    status
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_that_http2_asks_for_is_read_like_a_host() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("capture.redb");
    let file = file.to_str().unwrap();
    drop(Server::start(&["--capture", file]));
    let inspect = Server::spawn(&mut tito(&["inspect", file, "--port", "0"]));
    let server = Server::start(&["--admin-port", "0"]);
    let admin = server.admin();
    for (address, method, path, refusal) in
        [(admin, "POST", "/reset_prefix_cache", 403), (inspect.address, "GET", "/v1/trajectories", 404)]
    {
        for (authority, host, served) in [
            ("127.0.0.1", None, true),
            ("localhost:9000", Some("localhost:9000"), true),
            ("evil.example", None, false),
            ("evil.example:9000", Some("localhost:9000"), false),
            ("localhost:9000", Some("evil.example"), false),
            ("evil@127.0.0.1", None, false),
        ] {
            let status = status_over_http2(address, method, &format!("http://{authority}{path}"), host).await;
            assert_eq!(status != refusal, served, "{path}: {authority}, {host:?}: {status}");
        }
    }
}

const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const END_STREAM_AND_HEADERS: u8 = 5;
/// `GET http /` of nobody, as HPACK's static table has it.
const HEAD: &[u8] = b"\x82\x86\x84";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A request that is taken back at once.
fn reset(number: u32) -> Vec<u8> {
    let stream = 2 * number + 1;
    [frame(HEADERS, END_STREAM_AND_HEADERS, stream, HEAD), frame(RESET, 0, stream, &[0, 0, 0, 8])].concat()
}

/// A part of a head that does not end.
fn head(number: u32, more: &[u8]) -> Vec<u8> {
    if number == 0 { frame(HEADERS, 1, 1, HEAD) } else { frame(CONTINUATION, 0, 1, more) }
}

/// Sends until the server hangs up.
fn until_hung_up(address: SocketAddr, frames: impl Fn(u32) -> Vec<u8>, what: &str) {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_write_timeout(Some(PATIENCE)).unwrap();
    let start = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, &[])[..]].concat();
    connection.write_all(&start).unwrap();
    let mut sent = 0;
    for number in 0.. {
        let bytes = frames(number);
        sent += bytes.len();
        if let Err(error) = connection.write_all(&bytes) {
            assert!(!matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut), "{what}");
            return;
        }
        assert!(sent < MOST_SENT, "{what}: the server takes all of it");
    }
}

#[test]
fn floods_of_resets_and_heads_without_end_are_hung_up_on() {
    let server = Server::start(&[]);
    // A field under a name of its own, of 127 + 0x7d * 128 bytes.
    let field = [b"\x00\x01a\x7f\x80\x7d".to_vec(), vec![b'b'; 127 + 0x7d * 128]].concat();
    until_hung_up(server.address, reset, "resets");
    until_hung_up(server.address, |number| head(number, &field), "a head without end");
    until_hung_up(server.address, |number| head(number, &[]), "an empty head without end");
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));
    let (status, log) = server.stop("-TERM");
    assert!(status.success() && !log.contains("panicked"), "{log}");
}
