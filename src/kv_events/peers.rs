//! The peers of a publishing socket: who subscribes to what, and what waits for each.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpStream, tcp::OwnedReadHalf},
    sync::mpsc,
};

use super::zmtp::{self, Incoming};

/// The most peers of a socket, and the most subscriptions of a peer.
pub(super) const MOST_PEERS: usize = 256;
const MOST_SUBSCRIPTIONS: usize = 64;

/// All peers.
pub(super) struct Peers {
    topic: Vec<u8>,
    /// How many messages may wait for a peer.
    hwm: usize,
    connected: Mutex<Vec<Arc<Peer>>>,
}

struct Peer {
    waiting: mpsc::Sender<Bytes>,
    subscriptions: Mutex<Vec<Vec<u8>>>,
    lost: AtomicU64,
}

impl Peers {
    pub(super) fn new(topic: &str, hwm: usize) -> Arc<Self> {
        Arc::new(Self { topic: topic.as_bytes().to_vec(), hwm, connected: Mutex::new(Vec::new()) })
    }

    /// What each message begins with.
    pub(super) fn topic(&self) -> &[u8] {
        &self.topic
    }

    /// Hands a message to all who subscribe to the topic. Whoever does not keep up loses it, and sees it by the number of the next.
    pub(super) fn publish(&self, message: &Bytes) {
        for peer in self.connected.lock().iter() {
            let subscribes = peer.subscriptions.lock().iter().any(|prefix| self.topic.starts_with(prefix));
            if subscribes
                && peer.waiting.try_send(message.clone()).is_err()
                && peer.lost.fetch_add(1, Ordering::Relaxed) == 0
            {
                tracing::warn!(
                    "a subscriber of KV events does not keep up: it loses what comes while {} batches wait for it",
                    self.hwm
                );
            }
        }
    }

    /// How many peers subscribe to the topic.
    #[cfg(test)]
    pub(super) fn subscribers(&self) -> usize {
        let subscribes =
            |peer: &&Arc<Peer>| peer.subscriptions.lock().iter().any(|prefix| self.topic.starts_with(prefix));
        self.connected.lock().iter().filter(subscribes).count()
    }

    /// Serves a peer until its connection ends.
    pub(super) async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        zmtp::shake_hands(&mut stream, "PUB", &["SUB", "XSUB"]).await?;
        let (reader, mut writer) = stream.into_split();
        let (waiting, mut messages) = mpsc::channel::<Bytes>(self.hwm);
        let peer = Arc::new(Peer { waiting, subscriptions: Mutex::default(), lost: AtomicU64::new(0) });
        {
            let mut peers = self.connected.lock();
            if peers.len() >= MOST_PEERS {
                return Err(std::io::Error::other(format!("there are {MOST_PEERS} subscribers already")));
            }
            peers.push(Arc::clone(&peer));
        }
        let write = async {
            while let Some(message) = messages.recv().await {
                writer.write_all(&message).await?;
            }
            Ok(())
        };
        let outcome = tokio::select! {
            ended = listen(reader, &peer) => ended,
            ended = write => ended,
        };
        self.connected.lock().retain(|other| !Arc::ptr_eq(other, &peer));
        match peer.lost.load(Ordering::Relaxed) {
            0 => {}
            lost => tracing::warn!("a subscriber of KV events that left lost {lost} batches"),
        }
        outcome
    }
}

/// Takes note of subscriptions, until the connection ends.
async fn listen(mut reader: OwnedReadHalf, peer: &Peer) -> std::io::Result<()> {
    loop {
        let frames = match zmtp::read(&mut reader).await? {
            // A peer for which too much waits already does not hear of it.
            Incoming::Ping(context) => {
                let _ = peer.waiting.try_send(zmtp::pong(&context));
                continue;
            }
            Incoming::Message(frames) => frames,
        };
        let [frame] = &frames[..] else { continue };
        let mut subscriptions = peer.subscriptions.lock();
        match frame.split_first() {
            Some((1, _)) if subscriptions.len() >= MOST_SUBSCRIPTIONS => {
                return Err(std::io::Error::other(format!("more than {MOST_SUBSCRIPTIONS} subscriptions")));
            }
            Some((1, topic)) => subscriptions.push(topic.to_vec()),
            Some((0, topic)) => {
                if let Some(index) = subscriptions.iter().position(|known| known == topic) {
                    subscriptions.swap_remove(index);
                }
            }
            _ => {}
        }
    }
}
