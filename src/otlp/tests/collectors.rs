//! Collectors that answer as a test has them: one of HTTP/1, one of gRPC.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use reqwest::header::{HeaderMap, HeaderValue};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

use crate::otlp::protobuf::ExportTraceServiceRequest;

/// What a collector does with a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Behaviour {
    /// It answers: the status, a line of a header, the body. Of gRPC, the status is gRPC's.
    Answers(u32, &'static str, &'static [u8]),
    /// It never does.
    IsSilent,
    /// It closes the connection.
    HangsUp,
}

/// A request that came.
pub(super) struct Came {
    /// Its line and its headers, in lower case.
    pub(super) head: String,
    pub(super) message: ExportTraceServiceRequest,
}

/// A collector at a port of its own.
pub(super) struct Collector {
    pub(super) port: u16,
    requests: mpsc::Receiver<Came>,
}

/// The behaviours of the next requests; the last one is that of all later ones.
type Script = Arc<Mutex<Vec<Behaviour>>>;

fn next(script: &Script) -> Behaviour {
    let mut script = script.lock();
    if script.len() > 1 { script.remove(0) } else { script[0] }
}

/// A connection, with TLS or without.
type Wire = Box<dyn ReadWrite>;

trait ReadWrite: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ReadWrite for T {}

fn acceptor(protocol: &[u8]) -> TlsAcceptor {
    let file = |name: &str| format!("{}/tests/fixtures/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let chain = CertificateDer::pem_file_iter(file("server.pem")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(file("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

impl Collector {
    /// One of OTLP over HTTP.
    pub(super) async fn of_http(script: &[Behaviour]) -> Self {
        Self::serving(script, None, http).await
    }

    /// One of OTLP over gRPC.
    pub(super) async fn of_grpc(script: &[Behaviour]) -> Self {
        Self::serving(script, None, grpc).await
    }

    /// The same over TLS, with the certificate of the fixtures.
    pub(super) async fn of_https(script: &[Behaviour]) -> Self {
        Self::serving(script, Some(acceptor(b"http/1.1")), http).await
    }

    /// The same over TLS, with the certificate of the fixtures.
    pub(super) async fn of_grpc_over_tls(script: &[Behaviour]) -> Self {
        Self::serving(script, Some(acceptor(b"h2")), grpc).await
    }

    async fn serving<F>(
        script: &[Behaviour],
        tls: Option<TlsAcceptor>,
        serve: fn(Wire, Script, mpsc::Sender<Came>) -> F,
    ) -> Self
    where
        F: Future<Output = Option<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (came, requests) = mpsc::channel(100);
        let script: Script = Arc::new(Mutex::new(script.to_vec()));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, script, came) = (tls.clone(), Arc::clone(&script), came.clone());
                tokio::spawn(async move {
                    let wire: Wire = match tls {
                        Some(tls) => Box::new(tls.accept(stream).await.ok()?),
                        None => Box::new(stream),
                    };
                    serve(wire, script, came).await
                });
            }
        });
        Self { port, requests }
    }

    /// The next request.
    pub(super) async fn came(&mut self) -> Came {
        self.requests.recv().await.expect("the collector runs")
    }
}

async fn http(mut stream: Wire, script: Script, came: mpsc::Sender<Came>) -> Option<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.unwrap_or("0").parse().unwrap();
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let message = ExportTraceServiceRequest::decode(&body[..]).unwrap();
        let behaviour = next(&script);
        came.send(Came { head, message }).await.ok()?;
        match behaviour {
            Behaviour::Answers(status, header, body) => {
                let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
                let head = format!("HTTP/1.1 {status} x\r\n{header}content-length: {}\r\n\r\n", body.len());
                stream.write_all(&[head.as_bytes(), body].concat()).await.ok()?;
            }
            Behaviour::IsSilent => std::future::pending().await,
            Behaviour::HangsUp => return None,
        }
    }
}

#[expect(clippy::default_trait_access, reason = "the type is of a crate that only others here use")]
async fn grpc(stream: Wire, script: Script, came: mpsc::Sender<Came>) -> Option<()> {
    let mut connection = h2::server::handshake(stream).await.ok()?;
    while let Some(Ok((request, mut answer))) = connection.accept().await {
        let behaviour = next(&script);
        if matches!(behaviour, Behaviour::HangsUp) {
            return None;
        }
        let came = came.clone();
        // The connection has to be driven while the body is read.
        tokio::spawn(async move {
            let (head, mut body) = request.into_parts();
            let mut read = Vec::new();
            while let Some(Ok(chunk)) = body.data().await {
                let _ = body.flow_control().release_capacity(chunk.len());
                read.extend_from_slice(&chunk);
            }
            let length = u32::from_be_bytes(read[1..5].try_into().unwrap()) as usize;
            assert_eq!((read[0], read.len()), (0, length + 5));
            let head = format!("{} {} {:?}", head.method, head.uri, head.headers).to_lowercase();
            let message = ExportTraceServiceRequest::decode(&read[5..]).unwrap();
            came.send(Came { head, message }).await.ok()?;
            let Behaviour::Answers(status, message, body) = behaviour else { return std::future::pending().await };
            let mut stream = answer.send_response(Default::default(), false).ok()?;
            let framed = [&[0][..], &u32::try_from(body.len()).unwrap().to_be_bytes(), body].concat();
            stream.send_data(Bytes::from(framed), false).ok()?;
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", status.into());
            trailers.insert("grpc-message", HeaderValue::from_static(message));
            stream.send_trailers(trailers).ok()
        });
    }
    None
}
