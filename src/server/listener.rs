//! Where connections come from: TCP, TLS over it, or a Unix socket.

use std::{fmt, io, net::SocketAddr, time::Duration};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener},
    task::JoinSet,
};
use tokio_rustls::server::TlsStream;

use super::tls::Tls;

/// A socket that listens.
pub enum Endpoint {
    /// TCP.
    Tcp(TcpListener),
    /// TLS over TCP.
    Tls(TcpListener, Tls),
    /// A Unix socket.
    Unix(UnixListener),
}

/// Who asks, for the log.
#[derive(Debug, Clone)]
pub(super) struct Peer(String);

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// TCP connections whose tokens do not wait for company.
pub(super) struct Tcp(pub(super) TcpListener);

impl Listener for Tcp {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot disable Nagle's algorithm");
        }
        (stream, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// The longest a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Clients that may shake hands at a time; more wait in the system's queue.
const MOST_HANDSHAKES: usize = 1024;

type Shaken = Option<(TlsStream<TcpStream>, SocketAddr)>;

/// TLS connections; clients that are slow to shake hands hold up nobody else.
pub(super) struct TlsOverTcp {
    tcp: Tcp,
    tls: Tls,
    handshakes: JoinSet<Shaken>,
}

impl TlsOverTcp {
    pub(super) fn new(listener: TcpListener, tls: Tls) -> Self {
        Self { tcp: Tcp(listener), tls, handshakes: JoinSet::new() }
    }

    fn shake(&mut self, stream: TcpStream, address: SocketAddr) {
        let acceptor = self.tls.acceptor();
        self.handshakes.spawn(async move {
            match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => Some((stream, address)),
                Ok(Err(error)) => {
                    tracing::debug!(%address, %error, "a client could not agree on TLS");
                    None
                }
                Err(_) => None,
            }
        });
    }
}

impl Listener for TlsOverTcp {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TlsStream<TcpStream>, SocketAddr) {
        loop {
            tokio::select! {
                (stream, address) = self.tcp.accept(), if self.handshakes.len() < MOST_HANDSHAKES => {
                    self.shake(stream, address);
                }
                Some(shaken) = self.handshakes.join_next() => {
                    if let Ok(Some(connection)) = shaken {
                        return connection;
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

impl Connected<IncomingStream<'_, Tcp>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Tcp>) -> Self {
        Self(stream.remote_addr().to_string())
    }
}

impl Connected<IncomingStream<'_, TlsOverTcp>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TlsOverTcp>) -> Self {
        Self(stream.remote_addr().to_string())
    }
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(_: IncomingStream<'_, UnixListener>) -> Self {
        Self("unix".to_owned())
    }
}
