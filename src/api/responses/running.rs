//! A response that is generated while nobody waits, as far as it is.

use std::{convert::Infallible, sync::Arc};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::types::ResponseObject;
use crate::api::http::sse;

/// A response as far as it is.
pub(super) struct Running {
    response: Mutex<ResponseObject>,
    /// Its events, as frames of a stream.
    frames: Mutex<Vec<Bytes>>,
    /// Changes with every frame; true once the response does not change any more, which the store knows before.
    ended: watch::Sender<bool>,
    cancelled: Notify,
    streams: bool,
}

impl Running {
    /// A response of which nothing is there yet; its events are kept if it `streams`.
    pub(super) fn new(response: ResponseObject, streams: bool) -> Self {
        Self {
            response: Mutex::new(response),
            frames: Mutex::default(),
            ended: watch::Sender::new(false),
            cancelled: Notify::new(),
            streams,
        }
    }

    /// The response now.
    pub(super) fn response(&self) -> ResponseObject {
        self.response.lock().clone()
    }

    /// Whether the response does not change any more.
    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Ends the generation with what it has, and waits until that is kept.
    pub(super) async fn cancel(&self) {
        self.cancelled.notify_one();
        // The sender is ours.
        drop(self.ended.subscribe().wait_for(|ended| *ended).await);
    }

    /// Resolves when somebody wants the generation to end.
    pub(super) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }

    /// Changes the response.
    pub(super) fn change(&self, change: impl FnOnce(&mut ResponseObject)) {
        change(&mut self.response.lock());
    }

    /// Says that the response does not change any more.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Tells the next event to all who listen.
    pub(super) fn tell(&self, frame: Bytes) {
        self.frames.lock().push(frame);
        self.ended.send_modify(|_| {});
    }

    /// Answers with the events that come later than `after`, as they come; `None` if the response was not made to be streamed.
    pub(super) fn respond(self: &Arc<Self>, after: Option<usize>) -> Option<Response> {
        if !self.streams {
            return None;
        }
        let mut told = self.ended.subscribe();
        let running = Arc::clone(self);
        let mut next = after.map_or(0, |after| after.saturating_add(1));
        let frames = async_stream::stream! {
            loop {
                let ended = *told.borrow_and_update();
                let frames = running.frames.lock().get(next..).unwrap_or_default().to_vec();
                next = next.saturating_add(frames.len());
                for frame in frames {
                    yield Ok::<_, Infallible>(frame);
                }
                if ended || told.changed().await.is_err() {
                    break;
                }
            }
        };
        Some(sse::response(Body::from_stream(frames)))
    }
}
