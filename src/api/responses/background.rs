//! Responses that are generated while nobody waits.
//!
//! One task begins, generates and ends such a response, and is the only one to write its record. Whoever wants it to end
//! asks the task, and waits.

use std::{convert::Infallible, sync::Arc};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};

use super::{
    output::{Writer, Written},
    records::{Record, ResponseKey},
    reservations::Reservation,
    steps,
    stream::{Frames, StreamEvent},
    types::{ResponseError, ResponseObject, Status},
};
use crate::{
    api::{Api, error::ApiError, sse},
    generation::Event,
    store::RecordState,
};

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

    fn tell(&self, frame: Bytes) {
        self.frames.lock().push(frame);
        self.ended.send_modify(|_| {});
    }

    /// Answers with the events behind `after`, as they come; `None` if the response was not made to be streamed.
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

/// What is needed to generate a response and to keep it.
struct Task {
    api: Arc<Api>,
    running: Arc<Running>,
    reservation: Reservation,
    record: Record,
}

/// Starts to generate a response, which is found under its id from now on; as it was then.
pub(super) async fn start(
    api: Arc<Api>,
    events: impl Stream<Item = Result<(usize, Event), ApiError>> + Send + 'static,
    writer: Writer,
    (reservation, record): (Reservation, Record),
    streams: bool,
) -> Result<(Arc<Running>, ResponseObject), ApiError> {
    let queued = writer.response().clone();
    let running = Arc::new(Running {
        response: Mutex::new(queued.clone()),
        frames: Mutex::default(),
        ended: watch::Sender::new(false),
        cancelled: Notify::new(),
        streams,
    });
    let (tell_begun, begun) = oneshot::channel();
    let task = Task { api, running: Arc::clone(&running), reservation, record };
    // The request may be gone at any time; the response is not.
    tokio::spawn(task.run(steps(events, writer), tell_begun));
    begun.await.map_err(ApiError::internal)??;
    Ok((running, queued))
}

impl Task {
    /// Generates to the end, and keeps what came of it.
    async fn run(
        mut self,
        steps: impl Stream<Item = Result<(StreamEvent, Option<Written>), ApiError>> + Send,
        tell_begun: oneshot::Sender<Result<(), ApiError>>,
    ) {
        self.reservation.enter(Arc::clone(&self.running));
        let response = self.running.response();
        // A store that cannot keep it is found out now, not when the answer is there.
        let kept = self.keep(RecordState::InProgress, &response, &[]).await;
        let refused = kept.is_err();
        drop(tell_begun.send(kept));
        if !refused {
            self.generate(steps).await;
        }
        self.running.ended.send_replace(true);
    }

    async fn generate(&mut self, steps: impl Stream<Item = Result<(StreamEvent, Option<Written>), ApiError>> + Send) {
        let mut steps = std::pin::pin!(steps);
        let mut frames = Frames::default();
        loop {
            let step = tokio::select! {
                // Polled first, so that there is a generation to end.
                biased;
                step = steps.next() => step,
                () = self.running.cancelled.notified() => {
                    let key = self.reservation.key();
                    self.api.turns.generator.running().abort(key.owner(), [key.id()]);
                    continue;
                }
            };
            let Some(step) = step else { break };
            let step = match step {
                Ok((event, written)) => self.advance(&event, written).await.map(|()| event),
                Err(error) => Err(error),
            };
            let failed = step.is_err();
            if let Err(error) = &step {
                self.fail(error).await;
            }
            self.running.tell(frames.frame(step));
            if failed {
                break;
            }
        }
    }

    /// What an event changes of the response; its whole is kept before anybody sees it.
    async fn advance(&mut self, event: &StreamEvent, written: Option<Written>) -> Result<(), ApiError> {
        if let StreamEvent::InProgress { .. } = event {
            self.running.response.lock().status = Status::InProgress;
        }
        let Some(Written { response, items, .. }) = written else { return Ok(()) };
        self.keep(RecordState::Done, &response, &items).await?;
        *self.running.response.lock() = response;
        Ok(())
    }

    /// Keeps that there will be no response. A store that refuses even that has an unfinished record, which says the same.
    async fn fail(&mut self, error: &ApiError) {
        let mut response = self.running.response();
        response.status = Status::Failed;
        response.error = Some(ResponseError { code: "server_error", message: error.body().error.message });
        if self.keep(RecordState::Done, &response, &[]).await.is_err() {
            tracing::error!(id = self.reservation.key().id(), "a response that failed could not be kept");
        }
        *self.running.response.lock() = response;
    }

    async fn keep(
        &mut self,
        state: RecordState,
        response: &ResponseObject,
        items: &[super::types::OutputItem],
    ) -> Result<(), ApiError> {
        let record = self.record.of(response, items)?;
        self.api.responses.put(&self.reservation, state, record).await
    }
}

/// Cancels a response that is generated in the background; what was said is kept.
pub(super) async fn cancel(api: &Api, key: &ResponseKey) -> Result<ResponseObject, ApiError> {
    let refused = |message: &str| Err(ApiError::invalid_response("response_id", message));
    let Some(running) = api.responses.running(key) else {
        let (_, record) = api.responses.get(key).await?;
        return if record.is_background()? {
            refused("Cannot cancel a response that has ended.")
        } else {
            refused("Cannot cancel a synchronous response.")
        };
    };
    running.cancel().await;
    let response = running.response();
    if response.status != Status::Cancelled {
        return refused("Cannot cancel a response that has ended.");
    }
    Ok(response)
}
