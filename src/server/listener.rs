//! Where connections come from: TCP, TLS over it, or a Unix socket.

use std::{collections::VecDeque, fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    task::{AbortHandle, JoinSet},
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
/// Clients that may shake hands at a time, however many connections there may be.
const MOST_HANDSHAKES: usize = 1024;

/// How many of `room` clients may shake hands at a time.
pub(super) fn most_handshakes(room: usize) -> usize {
    (room / 8).clamp(1, MOST_HANDSHAKES)
}

type Shaken = Option<(TlsStream<TcpStream>, SocketAddr)>;

/// TLS connections; clients that are slow to shake hands hold up nobody else, however many there are.
pub(super) struct TlsOverTcp {
    tcp: Tcp,
    tls: Tls,
    handshakes: JoinSet<Shaken>,
    /// Those that are not over, the oldest first.
    unfinished: VecDeque<AbortHandle>,
    /// With as many, the oldest makes room: an honest client is done after two round trips.
    most: usize,
}

impl TlsOverTcp {
    pub(super) fn new(tcp: Tcp, tls: Tls, most: usize) -> Self {
        Self { tcp, tls, handshakes: JoinSet::new(), unfinished: VecDeque::new(), most }
    }

    fn shake(&mut self, stream: TcpStream, address: SocketAddr) {
        self.unfinished.retain(|handshake| !handshake.is_finished());
        if self.unfinished.len() >= self.most
            && let Some(oldest) = self.unfinished.pop_front()
        {
            tracing::debug!("too many handshakes: the oldest is ended");
            oldest.abort();
        }
        let acceptor = self.tls.acceptor();
        let handshake = self.handshakes.spawn(async move {
            match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => Some((stream, address)),
                Ok(Err(error)) => {
                    tracing::debug!(%address, %error, "a client could not agree on TLS");
                    None
                }
                Err(_) => None,
            }
        });
        self.unfinished.push_back(handshake);
    }
}

impl Listener for TlsOverTcp {
    type Io = Patient<TlsStream<TcpStream>>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            tokio::select! {
                // Handshakes that are over come first, so that no flood of new ones keeps them waiting.
                biased;
                Some(shaken) = self.handshakes.join_next() => {
                    if let Ok(Some((stream, address))) = shaken {
                        self.tcp.connections.room().await;
                        return (self.tcp.connections.opened(stream, address.to_string()), address);
                    }
                }
                (stream, address) = self.tcp.next() => self.shake(stream, address),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{
        connection::Patience,
        tls::{ClientCertificates, TlsFiles},
    };

    const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls");

    async fn listener(most: usize) -> TlsOverTcp {
        let files = TlsFiles {
            certificate: format!("{FIXTURES}/server.pem").into(),
            key: format!("{FIXTURES}/server.key").into(),
            client_authorities: None,
            clients: ClientCertificates::Ignored,
            refresh: false,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connections = Connections::new(9, Patience { head: HANDSHAKE, stall: None });
        TlsOverTcp::new(Tcp { listener, connections }, Tls::load(files).unwrap(), most)
    }

    #[tokio::test]
    async fn where_too_many_clients_shake_hands_the_oldest_goes() {
        let mut listener = listener(2).await;
        let mut silent = Vec::new();
        for _ in 0..3 {
            silent.push(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
            let (stream, address) = listener.tcp.next().await;
            listener.shake(stream, address);
        }
        let first = listener.handshakes.join_next().await.unwrap();
        assert!(first.unwrap_err().is_cancelled());
        assert_eq!((listener.handshakes.len(), listener.unfinished.len()), (2, 2));
        assert!(listener.unfinished.iter().all(|handshake| !handshake.is_finished()));
    }

    #[test]
    fn handshakes_are_a_part_of_the_room_for_connections() {
        assert_eq!([1, 192, 1 << 20].map(most_handshakes), [1, 24, MOST_HANDSHAKES]);
    }
}
