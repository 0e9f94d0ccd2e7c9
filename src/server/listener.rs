//! Where connections come from: TCP, TLS over it, or a Unix socket.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    task::JoinSet,
};
use tokio_rustls::server::TlsStream;

use super::{
    connection::{Connection, Connections, InFlight, Patient},
    tls::Tls,
};

/// A socket that listens.
pub enum Endpoint {
    /// TCP.
    Tcp(TcpListener),
    /// TLS over TCP.
    Tls(TcpListener, Tls),
    /// A Unix socket.
    Unix(UnixListener),
}

/// Who asks, on which connection, and how.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    connection: Arc<Connection>,
    uses_tls: bool,
}

impl Peer {
    /// Takes note of a request, which is over when the result is dropped.
    pub(super) fn begin(&self) -> InFlight {
        self.connection.begin()
    }

    /// Whether the connection is encrypted.
    pub(super) fn uses_tls(&self) -> bool {
        self.uses_tls
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connection.fmt(formatter)
    }
}

/// TCP connections on which a token is sent at once, without waiting for more to send.
pub(super) struct Tcp {
    pub(super) listener: TcpListener,
    pub(super) connections: Connections,
}

impl Tcp {
    async fn next(&self) -> (TcpStream, SocketAddr) {
        loop {
            let (stream, address) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    self.connections.make_room(&error).await;
                    continue;
                }
            };
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "cannot disable Nagle's algorithm");
            }
            return (stream, address);
        }
    }
}

impl Listener for Tcp {
    type Io = Patient<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Patient<TcpStream>, SocketAddr) {
        self.connections.room().await;
        let (stream, address) = self.next().await;
        (self.connections.opened(stream, address.to_string()), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Connections of a Unix socket.
pub(super) struct Unix {
    pub(super) listener: UnixListener,
    pub(super) connections: Connections,
}

impl Listener for Unix {
    type Io = Patient<UnixStream>;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        self.connections.room().await;
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => return (self.connections.opened(stream, "unix".to_owned()), address),
                Err(error) => self.connections.make_room(&error).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
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
    pub(super) fn new(tcp: Tcp, tls: Tls) -> Self {
        Self { tcp, tls, handshakes: JoinSet::new() }
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
    type Io = Patient<TlsStream<TcpStream>>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            tokio::select! {
                (stream, address) = self.tcp.next(), if self.handshakes.len() < MOST_HANDSHAKES => {
                    self.shake(stream, address);
                }
                Some(shaken) = self.handshakes.join_next() => {
                    if let Ok(Some((stream, address))) = shaken {
                        self.tcp.connections.room().await;
                        return (self.tcp.connections.opened(stream, address.to_string()), address);
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
        Self { connection: stream.io().connection(), uses_tls: false }
    }
}

impl Connected<IncomingStream<'_, TlsOverTcp>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TlsOverTcp>) -> Self {
        Self { connection: stream.io().connection(), uses_tls: true }
    }
}

impl Connected<IncomingStream<'_, Unix>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Unix>) -> Self {
        Self { connection: stream.io().connection(), uses_tls: false }
    }
}
