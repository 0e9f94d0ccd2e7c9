//! A server with a socket, in the test's own process.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use serde_json::Value;
use tito::{
    engine::Engine,
    server::{self, Endpoint, Port, Ports, ServerConfig, Work},
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

use crate::it::app::TestApp;

/// A server on a real socket, and the signal that stops it.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) ended: JoinHandle<std::io::Result<()>>,
}

impl Served {
    pub(crate) async fn new(app: &TestApp, config: &ServerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let config = config.clone();
        let running = app.running().clone();
        let (router, engine, readiness) = (app.router(), app.engine() as Arc<dyn Engine>, app.readiness());
        let ended = tokio::spawn(async move {
            let stopped = async move { stopped.await.unwrap() };
            let ports = Ports { main: Port { endpoint: Endpoint::Tcp(listener), app: router }, admin: None };
            let turn_away = Box::new(move || running.stop_queueing());
            let work = Work { engine: Some(engine), readiness, turn_away, ..Work::nothing() };
            server::serve(ports, work, &config, stopped).await
        });
        Self { address, stop, ended }
    }

    /// Sends a request on a connection of its own.
    pub(crate) fn connect(&self, path: &str, body: &Value) -> TcpStream {
        connect(self.address, path, body)
    }
}

/// Sends a request to an address, on a connection of its own.
pub(crate) fn connect(address: SocketAddr, path: &str, body: &Value) -> TcpStream {
    let mut connection = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    let length = body.len();
    write!(
        connection,
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    connection
}
