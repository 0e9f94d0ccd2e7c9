//! Where connections come from: TCP, TLS over it, or a Unix socket.

use std::{collections::VecDeque, fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};
use tokio_rustls::server::TlsStream;

use super::{
    connection::{Connection, Connections, InFlight, Patient},
    tls::Tls,
};
use crate::reader::Reader;

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

    /// Who reads its answers, as far as its connection tells.
    pub(super) fn reader(&self) -> Arc<dyn Reader> {
        Arc::<Connection>::clone(&self.connection)
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

/// Bytes of answers that the system takes for a client before it has sent them. More would make nothing faster.
#[cfg(target_os = "linux")]
const MOST_UNSENT: u32 = 128 << 10;

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
            if let Err(error) = bound_unsent(&stream) {
                tracing::debug!(%error, "cannot bound what the system keeps for a client");
            }
            return (stream, address);
        }
    }
}

/// Has the system take no more bytes of an answer than it sends soon. Otherwise it keeps megabytes, and says that it takes
/// more only after a third of them was read: until then, a client that reads slowly looks like one that does not.
#[cfg(target_os = "linux")]
fn bound_unsent(stream: &TcpStream) -> io::Result<()> {
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(MOST_UNSENT)
}

/// Other systems say earlier that they take more, or cannot be told.
#[cfg(not(target_os = "linux"))]
fn bound_unsent(_stream: &TcpStream) -> io::Result<()> {
    Ok(())
}

impl Listener for Tcp {
    type Io = Patient<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Patient<TcpStream>, SocketAddr) {
        let (stream, address) = self.next().await;
        // Nobody has to make room before there is somebody who needs it.
        self.connections.room().await;
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
        let (stream, address) = loop {
            match self.listener.accept().await {
                Ok(accepted) => break accepted,
                Err(error) => self.connections.make_room(&error).await,
            }
        };
        self.connections.room().await;
        (self.connections.opened(stream, "unix".to_owned()), address)
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
    /// Those that are not over, and when they began, the oldest first.
    unfinished: VecDeque<(Instant, AbortHandle)>,
    /// With as many, the oldest makes room once it has taken a while: an honest client is done after two round trips.
    most: usize,
    /// The next one that is to shake hands, once there is room.
    waiting: Option<(TcpStream, SocketAddr)>,
}

impl TlsOverTcp {
    pub(super) fn new(tcp: Tcp, tls: Tls, most: usize) -> Self {
        Self { tcp, tls, handshakes: JoinSet::new(), unfinished: VecDeque::new(), most, waiting: None }
    }

    /// When there is room for one more handshake, at the latest; `None` where there is some now. In a burst, the oldest one may
    /// not have had its turn yet.
    fn room_at(&mut self) -> Option<Instant> {
        self.unfinished.retain(|(_, handshake)| !handshake.is_finished());
        let (began, _) = self.unfinished.front().filter(|_| self.unfinished.len() >= self.most)?;
        // A round trip or two: a flood of silent clients must not hold up honest ones.
        Some(*began + self.tcp.connections.silence() / 4)
    }

    fn shake(&mut self, stream: TcpStream, address: SocketAddr) {
        self.unfinished.retain(|(_, handshake)| !handshake.is_finished());
        if self.unfinished.len() >= self.most
            && let Some((_, oldest)) = self.unfinished.pop_front()
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
        self.unfinished.push_back((Instant::now(), handshake));
    }
}

impl Listener for TlsOverTcp {
    type Io = Patient<TlsStream<TcpStream>>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let room_at = self.room_at();
            let room = async {
                if let Some(at) = room_at {
                    sleep_until(at).await;
                }
            };
            tokio::select! {
                // Handshakes that are over come first, so that no flood of new ones keeps them waiting.
                biased;
                Some(shaken) = self.handshakes.join_next() => {
                    if let Ok(Some((stream, address))) = shaken {
                        self.tcp.connections.room().await;
                        return (self.tcp.connections.opened(stream, address.to_string()), address);
                    }
                }
                () = room, if self.waiting.is_some() => {
                    if let Some((stream, address)) = self.waiting.take() {
                        self.shake(stream, address);
                    }
                }
                accepted = self.tcp.next(), if self.waiting.is_none() => self.waiting = Some(accepted),
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
    use axum::{
        body::Body,
        extract::{ConnectInfo, Request},
        http::Version,
        response::Response,
    };
    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::{
        reader,
        server::{
            connection::Patience,
            reading,
            tls::{ClientCertificates, TlsFiles},
        },
    };

    const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls");

    async fn listener(most: usize, silence: Duration) -> TlsOverTcp {
        let files = TlsFiles {
            certificate: format!("{FIXTURES}/server.pem").into(),
            key: format!("{FIXTURES}/server.key").into(),
            client_authorities: None,
            clients: ClientCertificates::Ignored,
            refresh: false,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connections = Connections::new(9, Patience { head: HANDSHAKE, stall: None, silence });
        TlsOverTcp::new(Tcp { listener, connections }, Tls::load(files).unwrap(), most)
    }

    #[tokio::test]
    async fn where_too_many_clients_shake_hands_the_oldest_goes() {
        let mut listener = listener(2, Duration::ZERO).await;
        let mut silent = Vec::new();
        for _ in 0..3 {
            silent.push(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
            let (stream, address) = listener.tcp.next().await;
            listener.shake(stream, address);
        }
        let first = listener.handshakes.join_next().await.unwrap();
        assert!(first.unwrap_err().is_cancelled());
        assert_eq!((listener.handshakes.len(), listener.unfinished.len()), (2, 2));
        assert!(listener.unfinished.iter().all(|(_, handshake)| !handshake.is_finished()));
    }

    #[tokio::test]
    async fn a_client_that_has_just_come_does_not_lose_its_handshake_to_the_next() {
        let mut listener = listener(1, Duration::from_hours(1)).await;
        let address = listener.local_addr().unwrap();
        let [first, _second] = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
        while listener.unfinished.is_empty() || listener.waiting.is_none() {
            assert!(listener.accept().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        assert!(listener.unfinished.iter().all(|(_, handshake)| !handshake.is_finished()));
        drop(first);
        while listener.waiting.is_some() {
            assert!(listener.accept().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        assert_eq!(listener.unfinished.len(), 1);
    }

    #[tokio::test]
    async fn an_answer_has_a_reader_where_its_connection_is_its_own() {
        let connections = Connections::new(1, Patience { head: HANDSHAKE, stall: None, silence: Duration::ZERO });
        let mut connection = connections.opened(tokio::io::sink(), "peer".to_owned());
        let peer = Peer { connection: connection.connection(), uses_tls: false };
        let before = peer.reader().took();
        connection.write_all(b"answer").await.unwrap();
        assert!(peer.reader().took() >= before);
        for (version, is_known) in [(Version::HTTP_11, true), (Version::HTTP_2, false)] {
            let mut request = Request::new(Body::empty());
            *request.version_mut() = version;
            request.extensions_mut().insert(ConnectInfo(peer.clone()));
            let known = reading::tell(request, |_| async {
                Response::new(Body::from(if reader::current().is_some() { "known" } else { "" }))
            });
            let text = axum::body::to_bytes(known.await.into_body(), 9).await.unwrap();
            assert_eq!(text, if is_known { "known" } else { "" }, "{version:?}");
        }
    }

    #[tokio::test]
    async fn more_clients_than_connections_are_all_answered_in_a_burst() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let patience = Patience { head: HANDSHAKE, stall: None, silence: Duration::from_hours(1) };
        let listener = Tcp { listener, connections: Connections::new(2, patience) };
        let mut clients = Vec::new();
        for _ in 0..16 {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
            clients.push(client);
        }
        let app = axum::Router::new().route("/", axum::routing::get(|| async { "answered" }));
        let app = crate::server::surrounded(app, None).into_make_service_with_connect_info::<Peer>();
        let served = tokio::spawn(axum::serve(listener, app).into_future());
        for client in &mut clients {
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("answered"), "{answer}");
        }
        served.abort();
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_system_takes_little_that_it_does_not_send() {
        let listener = listener(1, Duration::ZERO).await;
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.tcp.next().await;
        assert_eq!(socket2::SockRef::from(&stream).tcp_notsent_lowat().unwrap(), MOST_UNSENT);
    }

    #[test]
    fn handshakes_are_a_part_of_the_room_for_connections() {
        assert_eq!([1, 192, 1 << 20].map(most_handshakes), [1, 24, MOST_HANDSHAKES]);
    }
}
