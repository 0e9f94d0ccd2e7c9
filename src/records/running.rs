//! A response that is generated while no client waits, as far as it has come.

use std::sync::Arc;

use crate::wire::responses::types::ResponseObject;
use bytes::Bytes;
use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// The state of a response that is being generated.
pub struct Running {
    response: Mutex<ResponseObject>,
    /// The events so far, as frames of a stream.
    frames: Mutex<Vec<Bytes>>,
    /// Notifies listeners of every frame; becomes true when the response does not change any more, and has been stored.
    ended: watch::Sender<bool>,
    cancelled: Notify,
    streams: bool,
}

impl Running {
    /// Starts without any output; the events are kept if it `streams`.
    pub fn new(response: ResponseObject, streams: bool) -> Self {
        Self {
            response: Mutex::new(response),
            frames: Mutex::default(),
            ended: watch::Sender::new(false),
            cancelled: Notify::new(),
            streams,
        }
    }

    /// Returns the response as it is now.
    pub fn response(&self) -> ResponseObject {
        self.response.lock().clone()
    }

    /// Whether the response does not change any more.
    pub fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Ends the generation with the output so far, and waits until that is kept.
    pub async fn cancel(&self) {
        self.cancelled.notify_one();
        // This cannot fail, because `self` owns the sender.
        drop(self.ended.subscribe().wait_for(|ended| *ended).await);
    }

    /// Resolves when somebody wants the generation to end.
    pub async fn cancelled(&self) {
        self.cancelled.notified().await;
    }

    /// Changes the response.
    pub fn change(&self, change: impl FnOnce(&mut ResponseObject)) {
        change(&mut self.response.lock());
    }

    /// Marks the response as one that does not change any more.
    pub fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Sends the next event to all listeners.
    pub fn tell(&self, frame: Bytes) {
        self.frames.lock().push(frame);
        self.ended.send_modify(|_| {});
    }

    /// Returns the events so far; `None` if the response was not made to be streamed.
    pub fn frames_so_far(&self) -> Option<Vec<Bytes>> {
        self.streams.then(|| self.frames.lock().clone())
    }

    /// Returns the events after number `after`, as they come; `None` if the response was not made to be streamed.
    pub fn frames(self: &Arc<Self>, after: Option<usize>) -> Option<impl Stream<Item = Bytes> + Send + use<>> {
        if !self.streams {
            return None;
        }
        let mut told = self.ended.subscribe();
        let running = Arc::clone(self);
        let mut next = after.map_or(0, |after| after.saturating_add(1));
        Some(async_stream::stream! {
            loop {
                let ended = *told.borrow_and_update();
                let frames = running.frames.lock().get(next..).unwrap_or_default().to_vec();
                next = next.saturating_add(frames.len());
                for frame in frames {
                    yield frame;
                }
                if ended || told.changed().await.is_err() {
                    break;
                }
            }
        })
    }
}
