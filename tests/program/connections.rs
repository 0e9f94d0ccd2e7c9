//! TLS and Unix sockets, by running the binary.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::Path,
    sync::Arc,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

use crate::program::{Server, TINY_MODEL, failure, serve_arguments};

const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls");

pub(crate) fn fixture(name: &str) -> String {
    format!("{TLS}/{name}")
}

fn certificates(name: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(fixture(name)).unwrap().collect::<Result<_, _>>().unwrap()
}

/// The answer of `/health` over TLS, to a client with or without a certificate.
async fn health(server: &Server, shows_certificate: bool) -> std::io::Result<String> {
    answer_over_tls(server.address, shows_certificate, "/health").await
}

/// The answer to a request over TLS, from a client with or without a certificate.
async fn answer_over_tls(address: SocketAddr, shows_certificate: bool, path: &str) -> std::io::Result<String> {
    answer_over(TcpStream::connect(address).await?, shows_certificate, path).await
}

/// The same on a connection on which nothing was said.
pub(crate) async fn answer_over(tcp: TcpStream, shows_certificate: bool, path: &str) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(certificates("authority.pem").remove(0)).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let config = if shows_certificate {
        let key = PrivateKeyDer::from_pem_file(fixture("client.key")).unwrap();
        builder.with_client_auth_cert(certificates("client.pem"), key).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_makes_the_server_speak_tls() {
    let (certificate, key) = (fixture("server.pem"), fixture("server.key"));
    let server = Server::start(&["--ssl-certfile", &certificate, "--ssl-keyfile", &key]);
    assert!(server.banner.contains(" | https://127.0.0.1:"), "{}", server.banner);
    // A client that says nothing holds up nobody else.
    let _silent = TcpStream::connect(server.address).await.unwrap();
    assert!(health(&server, false).await.unwrap().starts_with("HTTP/1.1 200"));
    let redirection = answer_over_tls(server.address, false, "/v1/models/").await.unwrap();
    assert!(redirection.starts_with("HTTP/1.1 307"), "{redirection}");
    assert!(redirection.contains("\r\nlocation: https://localhost/v1/models\r\n"), "{redirection}");
    let (status, rest) = server.stop("-TERM");
    assert_eq!(status.code(), Some(0), "{rest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_may_have_to_show_a_certificate() {
    let [certificate, key, authority] = ["server.pem", "server.key", "authority.pem"].map(fixture);
    let flags = ["--ssl-certfile", &certificate, "--ssl-keyfile", &key, "--ssl-ca-certs", &authority];
    let server = Server::start(&[&flags[..], &["--ssl-cert-reqs", "2"]].concat());
    assert!(health(&server, false).await.is_err());
    assert!(health(&server, true).await.unwrap().starts_with("HTTP/1.1 200"));
    let optional = Server::start(&[&flags[..], &["--ssl-cert-reqs", "1"]].concat());
    assert!(health(&optional, false).await.unwrap().starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_of_the_control_plane_speaks_tls_where_the_main_one_does() {
    let [certificate, key, authority] = ["server.pem", "server.key", "authority.pem"].map(fixture);
    let flags = ["--ssl-certfile", &certificate, "--ssl-keyfile", &key, "--admin-port", "0"];
    let server = Server::start(&flags);
    assert!(server.said.contains("the control plane is at https://127.0.0.1:"), "{}", server.said);
    assert!(answer_over_tls(server.admin(), false, "/health").await.unwrap().starts_with("HTTP/1.1 200"));
    let mut plain = TcpStream::connect(server.admin()).await.unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _closed = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
    let (status, rest) = server.stop("-TERM");
    assert_eq!(status.code(), Some(0), "{rest}");
    let server = Server::start(&[&flags[..], &["--ssl-ca-certs", &authority, "--ssl-cert-reqs", "2"]].concat());
    assert!(answer_over_tls(server.admin(), false, "/health").await.is_err());
    assert!(answer_over_tls(server.admin(), true, "/health").await.unwrap().starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_changes_is_read_again_if_asked_to() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    for name in ["server.pem", "server.key"] {
        std::fs::copy(fixture(name), place(name)).unwrap();
    }
    // Signed for clients: no client takes it for a server's.
    std::fs::copy(fixture("client.pem"), place("server.pem")).unwrap();
    std::fs::copy(fixture("client.key"), place("server.key")).unwrap();
    let [certificate, key] = ["server.pem", "server.key"].map(|name| place(name).to_str().unwrap().to_owned());
    let server = Server::start(&["--ssl-certfile", &certificate, "--ssl-keyfile", &key, "--enable-ssl-refresh"]);
    assert!(health(&server, false).await.is_err());
    for name in ["server.pem", "server.key"] {
        std::fs::write(place(name), std::fs::read(fixture(name)).unwrap()).unwrap();
    }
    assert!(health(&server, false).await.unwrap().starts_with("HTTP/1.1 200"));
}

#[test]
fn certificates_that_cannot_be_used_stop_the_start() {
    let [server, client_key] = ["server.pem", "client.key"].map(fixture);
    for (certificate, key, words) in
        [("no-such.pem", client_key.as_str(), "no-such.pem"), (server.as_str(), client_key.as_str(), "does not fit")]
    {
        let flags = ["--ssl-certfile", certificate, "--ssl-keyfile", key];
        let line = failure(&serve_arguments(TINY_MODEL, &flags));
        assert!(line.contains(words), "{line}");
    }
}

#[test]
fn a_unix_socket_is_served_and_goes_away_with_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tito.sock");
    let text = path.to_str().unwrap();
    // One that a server left behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = Server::start(&["--uds", text]);
    assert!(server.banner.ends_with(&format!(" | unix:{text}")), "{}", server.banner);
    let mut connection = UnixStream::connect(&path).unwrap();
    connection.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let line = failure(&serve_arguments(TINY_MODEL, &["--uds", text]));
    assert!(line.contains(text), "{line}");
    let (status, rest) = server.stop("-TERM");
    assert_eq!(status.code(), Some(0), "{rest}");
    assert!(!Path::new(text).exists());
}

/// A whole answer with a length, as it came.
async fn answer(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    loop {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece).await.unwrap();
        assert!(count > 0, "the connection was closed: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&read).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return text;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_outlives_a_request_that_was_refused_before_its_body_came() {
    let server = Server::start(&["--api-key", "k"]);
    for (path, status) in [("/v1/nope", "401"), ("/v1/completions", "401"), ("/nope", "401")] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        assert!(answer(&mut stream).await.starts_with(&format!("HTTP/1.1 {status} ")), "{path}");
        stream.write_all(&vec![b' '; 200_000]).await.unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200 "), "{path}");
    }
}
