//! The two sockets, and the task that publishes.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use super::{
    endpoint::Endpoint,
    messages,
    peers::{MOST_PEERS, Peers},
    replay::Kept,
    zmtp,
};
use crate::engine::cache_events::CacheEvents;

/// How long after a call that failed the next one comes.
const BETWEEN_CALLS: Duration = Duration::from_millis(200);

/// What to publish where.
#[derive(Debug, Clone)]
pub(crate) struct Publishing {
    /// Where subscribers find events, or where they are called.
    pub(crate) endpoint: String,
    /// Where they ask for those that they missed.
    pub(crate) replay_endpoint: Option<String>,
    /// How many batches are kept for that.
    pub(crate) buffer_steps: usize,
    /// How many batches may wait for one subscriber.
    pub(crate) hwm: usize,
    /// What each message begins with.
    pub(crate) topic: String,
}

/// Sockets that are ready.
pub(crate) struct Bound {
    place: Place,
    replay: Option<TcpListener>,
    publishing: Publishing,
}

enum Place {
    Here(TcpListener),
    There(Endpoint),
}

impl Publishing {
    /// Takes the ports.
    ///
    /// # Errors
    ///
    /// If an endpoint is none, or cannot be had; the error is one line.
    pub(crate) async fn bind(self) -> Result<Bound, String> {
        let endpoint: Endpoint = self.endpoint.parse()?;
        let place = if endpoint.is_wildcard { Place::Here(listen(&endpoint).await?) } else { Place::There(endpoint) };
        let replay = match &self.replay_endpoint {
            Some(endpoint) => Some(listen(&endpoint.parse()?).await?),
            None => None,
        };
        Ok(Bound { place, replay, publishing: self })
    }
}

async fn listen(endpoint: &Endpoint) -> Result<TcpListener, String> {
    TcpListener::bind(endpoint.address()).await.map_err(|error| format!("cannot listen at {endpoint}: {error}"))
}

impl Bound {
    /// Where it listens: for subscribers, and for those who missed events.
    #[cfg(test)]
    pub(super) fn addresses(&self) -> (Option<std::net::SocketAddr>, Option<std::net::SocketAddr>) {
        let here = match &self.place {
            Place::Here(listener) => listener.local_addr().ok(),
            Place::There(_) => None,
        };
        (here, self.replay.as_ref().and_then(|listener| listener.local_addr().ok()))
    }

    /// Publishes events until there are no more, in tasks of their own.
    pub(crate) fn start(self, mut events: CacheEvents) {
        let (peers, kept) = self.serve();
        tokio::spawn(async move {
            let block_size = events.block_size();
            let mut number = 0;
            while let Some(batch) = events.next().await {
                publish(&peers, &kept, number, &messages::batch(&batch, block_size).into());
                number += 1;
            }
        });
    }

    /// Serves whoever connects.
    pub(super) fn serve(self) -> (Arc<Peers>, Arc<Kept>) {
        let Publishing { topic, hwm, buffer_steps, .. } = self.publishing;
        let (peers, kept) = (Peers::new(&topic, hwm), Kept::new(&topic, buffer_steps));
        let served = Arc::clone(&peers);
        match self.place {
            Place::Here(listener) => {
                _ = tokio::spawn(accept(listener, move |stream| {
                    let peers = Arc::clone(&served);
                    async move { peers.serve(stream).await }
                }));
            }
            Place::There(endpoint) => _ = tokio::spawn(call(endpoint, served)),
        }
        if let Some(listener) = self.replay {
            let kept = Arc::clone(&kept);
            tokio::spawn(accept(listener, move |stream| {
                let kept = Arc::clone(&kept);
                async move { kept.serve(stream).await }
            }));
        }
        (peers, kept)
    }
}

/// Publishes the batch of a number, and keeps it.
pub(super) fn publish(peers: &Peers, kept: &Kept, number: u64, payload: &Bytes) {
    // Kept first: whoever sees a gap by it finds what it missed.
    kept.keep(number, payload.clone());
    peers.publish(&zmtp::message(&[peers.topic(), &number.to_be_bytes(), payload]));
}

/// Serves all who connect, a bounded number at a time.
async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(MOST_PEERS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let served = serve(stream);
                tokio::spawn(async move {
                    if let Err(error) = served.await {
                        tracing::debug!("a peer of KV events left, {peer}: {error}");
                    }
                    drop(place);
                });
            }
            // Such as when there are too many open files.
            Err(_) => tokio::time::sleep(BETWEEN_CALLS).await,
        }
    }
}

/// Calls a subscriber that listens, again and again.
async fn call(endpoint: Endpoint, peers: Arc<Peers>) {
    loop {
        let called = match TcpStream::connect(endpoint.address()).await {
            Ok(stream) => peers.serve(stream).await,
            Err(error) => Err(error),
        };
        if let Err(error) = called {
            tracing::debug!("no subscriber of KV events at {endpoint}: {error}");
        }
        tokio::time::sleep(BETWEEN_CALLS).await;
    }
}
