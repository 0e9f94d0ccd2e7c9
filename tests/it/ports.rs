//! Ports that end together.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use axum::{Router, routing::get};
use tito::server::{self, Endpoint, Port, Ports, ServerConfig, Work};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, oneshot},
};

async fn port(app: Router) -> (Port, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (Port { endpoint: Endpoint::Tcp(listener), app }, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_of_the_control_plane_is_answered_before_the_process_ends() {
    let (begun, held) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (begins, holds) = (Arc::clone(&begun), Arc::clone(&held));
    let holding = move || {
        let (begun, held) = (Arc::clone(&begins), Arc::clone(&holds));
        async move {
            begun.add_permits(1);
            held.acquire().await.unwrap().forget();
            "done"
        }
    };
    let (main, _) = port(Router::new()).await;
    let (admin, address) = port(Router::new().route("/", get(holding))).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let ended = tokio::spawn(async move {
        let stopped = async move { stopped.await.unwrap() };
        let ports = Ports { main, admin: Some(admin) };
        server::serve(ports, Work::nothing(), &ServerConfig::default(), stopped).await
    });
    let answer = tokio::task::spawn_blocking(move || {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).unwrap();
        text
    });
    begun.acquire().await.unwrap().forget();
    stop.send(()).unwrap();
    held.add_permits(1);
    // The connection ends with its answer, although its client would have kept it.
    let text = answer.await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("done"), "{text}");
    ended.await.unwrap().unwrap();
}
