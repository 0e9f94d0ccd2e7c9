//! Batches that were published, for whoever missed some.

use std::{collections::VecDeque, io, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::zmtp::{self, Incoming};

/// What comes after the last batch: the number -1.
const END: [u8; 8] = [0xFF; 8];

/// The last batches.
pub(super) struct Kept {
    topic: Vec<u8>,
    most: usize,
    batches: Mutex<VecDeque<(u64, Bytes)>>,
}

impl Kept {
    pub(super) fn new(topic: &str, most: usize) -> Arc<Self> {
        Arc::new(Self { topic: topic.as_bytes().to_vec(), most, batches: Mutex::default() })
    }

    pub(super) fn keep(&self, number: u64, payload: Bytes) {
        let mut batches = self.batches.lock();
        batches.push_back((number, payload));
        while batches.len() > self.most {
            batches.pop_front();
        }
    }

    /// Answers a peer until its connection ends: with each batch that is kept from a number on, and the end.
    pub(super) async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        zmtp::shake_hands(&mut stream, "ROUTER", &["REQ", "DEALER", "ROUTER"]).await?;
        loop {
            let frames = match zmtp::read(&mut stream).await? {
                Incoming::Ping(context) => {
                    stream.write_all(&zmtp::pong(&context)).await?;
                    continue;
                }
                Incoming::Message(frames) => frames,
            };
            let Some(from) = asked(&frames) else {
                return Err(io::Error::other("a request for a replay is an empty frame and a number of 8 bytes"));
            };
            let kept: Vec<_> = self.batches.lock().iter().filter(|(number, _)| *number >= from).cloned().collect();
            for (number, payload) in kept {
                let message = zmtp::message(&[b"", &self.topic, &number.to_be_bytes(), &payload]);
                stream.write_all(&message).await?;
            }
            stream.write_all(&zmtp::message(&[b"", b"", &END, b""])).await?;
        }
    }
}

/// The number of the first batch that is wanted.
fn asked(frames: &[Vec<u8>]) -> Option<u64> {
    let [empty, number] = frames else { return None };
    let number: [u8; 8] = number.as_slice().try_into().ok()?;
    empty.is_empty().then(|| u64::from_be_bytes(number))
}
