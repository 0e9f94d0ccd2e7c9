//! Listening: one way for every port, whatever it serves.
//!
//! Owns how many connections each port may have, the clocks of its clients, and how all of them end together. Refuses to
//! know what is served.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::connect_info::{Connected, IntoMakeServiceWithConnectInfo},
    serve::{IncomingStream, Listener},
};
use futures::{
    FutureExt,
    future::{BoxFuture, try_join_all},
};
use tokio::sync::watch;

use super::{
    ServerConfig,
    connection::{Connections, Patience},
    listener::{Endpoint, Peer, Tcp, TlsOverTcp, Unix, most_handshakes},
    open_files::{self, Rooms},
};
use crate::{engine::Engine, state::Readiness};

/// What is served, and where.
pub struct Port {
    /// The socket.
    pub endpoint: Endpoint,
    /// Its routes.
    pub app: Router,
}

/// The ports of a process.
pub struct Ports {
    /// The one that has most of the files that the process may open.
    pub main: Port,
    /// The control plane's own.
    pub admin: Option<Port>,
}

/// What goes on besides connections, and has to end before the process does.
pub struct Work {
    /// What computes, if anything does.
    pub engine: Option<Arc<dyn Engine>>,
    /// Resolves when nothing is generated that no connection waits for.
    pub settled: BoxFuture<'static, ()>,
    /// Is told when the server was asked to stop.
    pub readiness: Readiness,
    /// Resolves when no call is under way that the engine is needed for, though nothing may be computed meanwhile.
    pub calls: BoxFuture<'static, ()>,
    /// Says whether nothing is computed until somebody says so, so that waiting for requests would be in vain.
    pub stands_still: Box<dyn Fn() -> bool + Send>,
    /// Refuses requests that wait for somebody to let them begin, who will not come any more.
    pub turn_away: Box<dyn Fn() + Send>,
}

impl Work {
    /// Nothing goes on besides connections.
    pub fn nothing() -> Self {
        Self {
            engine: None,
            settled: std::future::ready(()).boxed(),
            readiness: Readiness::default(),
            calls: std::future::ready(()).boxed(),
            stands_still: Box::new(|| false),
            turn_away: Box::new(|| ()),
        }
    }
}

/// How long the engine may take to become idle, and connections to send what is left.
const GRACE: Duration = Duration::from_secs(5);

/// How long a connection has to be silent before it may make room for another.
const SILENCE: Duration = Duration::from_secs(1);

/// Serves until `stop` resolves, and for the configured delay after it, then drains: running requests, on whichever port, go
/// on for the configured time, after which the engine ends them with what they have.
pub async fn serve(
    Ports { main, admin }: Ports,
    Work { engine, settled, readiness, calls, stands_still, turn_away }: Work,
    config: &ServerConfig,
    stop: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let patience = Patience { head: config.request_patience, stall: config.stream_stall_timeout, silence: SILENCE };
    let rooms = Rooms::of(open_files::most_connections(), usize::from(admin.is_some()));
    let (stopping, stopped) = watch::channel(false);
    let mut served = vec![main.serve(rooms.main, patience, stopped.clone())];
    served.extend(admin.map(|admin| admin.serve(rooms.other, patience, stopped)));
    let drained = async move {
        let ended = try_join_all(served).await;
        settled.await;
        ended.map(drop)
    };
    tokio::pin!(drained);
    tokio::select! {
        result = &mut drained => return result,
        () = stop => readiness.stop(),
    }
    if !config.shutdown_delay.is_zero() {
        tracing::info!(delay_seconds = config.shutdown_delay.as_secs(), "asked to stop: requests are still taken");
        tokio::select! {
            result = &mut drained => return result,
            () = tokio::time::sleep(config.shutdown_delay) => {}
        }
    }
    stopping.send_replace(true);
    tracing::info!(timeout_seconds = config.shutdown_timeout.as_secs(), "stopping: no new connections");
    turn_away();
    let (begun, timeout) = (Instant::now(), config.shutdown_timeout);
    let ended = tokio::select! {
        result = &mut drained => Some(result),
        _ = tokio::time::timeout(timeout, calls) => {
            let wait = if stands_still() { Duration::ZERO } else { timeout.saturating_sub(begun.elapsed()) };
            tokio::time::timeout(wait, &mut drained).await.ok()
        }
    };
    if ended.is_none() {
        tracing::warn!("requests are still running: ending them with what they have");
    }
    if let Some(engine) = engine {
        engine.shutdown(GRACE).await;
    }
    match ended {
        Some(result) => result,
        None => tokio::time::timeout(GRACE, drained).await.unwrap_or(Ok(())),
    }
}

impl Port {
    /// Serves with at most `room` connections until `stopped`, and to the end of what is asked by then.
    fn serve(
        self,
        room: usize,
        patience: Patience,
        stopped: watch::Receiver<bool>,
    ) -> BoxFuture<'static, io::Result<()>> {
        let app = self.app.into_make_service_with_connect_info::<Peer>();
        let connections = |most| Connections::new(most, patience);
        match self.endpoint {
            Endpoint::Tcp(listener) => {
                let listener = Tcp { listener, connections: connections(room) };
                serve_on(listener, app, stopped).boxed()
            }
            Endpoint::Tls(listener, tls) => {
                let handshakes = most_handshakes(room);
                let connections = connections(room.saturating_sub(handshakes).max(1));
                serve_on(TlsOverTcp::new(Tcp { listener, connections }, tls, handshakes), app, stopped).boxed()
            }
            Endpoint::Unix(listener) => {
                let listener = Unix { listener, connections: connections(room) };
                serve_on(listener, app, stopped).boxed()
            }
        }
    }
}

async fn serve_on<L>(
    listener: L,
    app: IntoMakeServiceWithConnectInfo<Router, Peer>,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()>
where
    L: Listener,
    L::Addr: std::fmt::Debug,
    for<'a> Peer: Connected<IncomingStream<'a, L>>,
{
    // Idle connections stay open for ever: clients of vLLM meet a server that closes them just as they ask.
    let stop = async move { _ = stopped.wait_for(|stopped| *stopped).await };
    axum::serve(listener, app).with_graceful_shutdown(stop).await
}
