//! Ports that end together.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use axum::{Router, routing::get};
use tito::{
    adapters::{AdapterPolicy, Adapters},
    admin::{self, Admin},
    control::ControlPolicy,
    engine::Engine,
    server::{self, Endpoint, Port, Ports, ServerConfig, Work},
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, oneshot},
};

use super::{
    control::{engine_of, norm_file, serve, settings},
    patience::until,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_weights_that_comes_while_the_server_stops_is_taken_to_its_end() {
    let engine: Arc<dyn Engine> = Arc::new(engine_of(&settings()));
    let control = serve(Arc::clone(&engine), ControlPolicy::default()).control;
    let served =
        admin::Served { model: "tiny".to_owned(), name: "tiny".to_owned(), weights: None, kv_block_size: None };
    let adapters = Arc::new(Adapters::new(Arc::clone(&engine), AdapterPolicy::default()));
    let admin = Arc::new(Admin { control: Arc::clone(&control), served, adapters });
    let (main, address) = port(admin::router(admin)).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let calls = Box::pin(control.writing_calls_ended());
    let ended = tokio::spawn({
        let control = Arc::clone(&control);
        let stands_still = Box::new(move || control.stands_still());
        async move {
            let work = Work { engine: Some(engine), calls, stands_still, ..Work::nothing() };
            let stopped = async move { stopped.await.unwrap() };
            server::serve(Ports { main, admin: None }, work, &ServerConfig::default(), stopped).await
        }
    });
    let file = norm_file("model.norm.weight", 0.5);
    let (first, rest) = file.split_at(file.len() - 4);
    let mut connection = TcpStream::connect(address).unwrap();
    write!(
        connection,
        "POST /update_weights?weight_version=7 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
        file.len()
    )
    .unwrap();
    connection.write_all(first).unwrap();
    until("the update is under way", async || control.status().updating).await;
    stop.send(()).unwrap();
    until("nobody is taken any more", async || TcpStream::connect(address).is_err()).await;
    connection.write_all(rest).unwrap();
    let answer = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        connection.read_to_string(&mut text).unwrap();
        text
    });
    let text = answer.await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert_eq!(&*control.weights().label, "7");
    ended.await.unwrap().unwrap();
}

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
