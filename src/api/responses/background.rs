//! Responses that are generated while nobody waits.
//!
//! Exactly one ends such a response: its generation, or whoever cancels it.

use std::{convert::Infallible, sync::Arc};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{
    Stream, StreamExt,
    future::{AbortHandle, Abortable},
};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    output::{Writer, Written},
    records::Record,
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
    state: Mutex<State>,
    /// Its events, as frames of a stream.
    frames: Mutex<Vec<Bytes>>,
    /// Changes with every frame; true once there will be no other.
    told: watch::Sender<bool>,
    abort: AbortHandle,
    streams: bool,
}

struct State {
    response: ResponseObject,
    ended: bool,
}

impl Running {
    /// The response now.
    pub(super) fn response(&self) -> ResponseObject {
        self.state.lock().response.clone()
    }

    /// Whether the response does not change any more.
    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Ends the response, unless that has happened already.
    fn end(&self, change: impl FnOnce(&mut ResponseObject)) -> bool {
        let mut state = self.state.lock();
        if state.ended {
            return false;
        }
        state.ended = true;
        change(&mut state.response);
        true
    }

    /// Ends the generation; false if it has ended already.
    pub(super) fn cancel(&self) -> bool {
        let ended = self.end(|response| response.status = Status::Cancelled);
        if ended {
            self.abort.abort();
            self.told.send_replace(true);
        }
        ended
    }

    fn tell(&self, frame: Bytes) {
        self.frames.lock().push(frame);
        self.told.send_modify(|_| {});
    }

    /// Answers with the events behind `after`, as they come; `None` if the response was not made to be streamed.
    pub(super) fn respond(self: &Arc<Self>, after: Option<usize>) -> Option<Response> {
        if !self.streams {
            return None;
        }
        let mut told = self.told.subscribe();
        let running = Arc::clone(self);
        let mut next = after.map_or(0, |after| after + 1);
        let frames = async_stream::stream! {
            loop {
                let ended = *told.borrow_and_update();
                let frames = running.frames.lock().get(next..).unwrap_or_default().to_vec();
                next += frames.len();
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

/// Starts to generate a response, which is found under its id from now on.
pub(super) async fn start(
    api: Arc<Api>,
    events: impl Stream<Item = Result<(usize, Event), ApiError>> + Send + 'static,
    writer: Writer,
    record: Record,
    streams: bool,
) -> Result<Arc<Running>, ApiError> {
    let response = writer.response().clone();
    let id = response.id.clone();
    // A store that cannot keep it is found out now, not when the answer is there.
    let record = record.of(&response, &[])?;
    api.responses.put(&id, RecordState::InProgress, &record).await?;
    let (abort, registration) = AbortHandle::new_pair();
    let running = Arc::new(Running {
        state: Mutex::new(State { response, ended: false }),
        frames: Mutex::default(),
        told: watch::Sender::new(false),
        abort,
        streams,
    });
    api.responses.enter(&id, Arc::clone(&running));
    let steps = steps(events, writer);
    let task = run(Arc::clone(&api), steps, Arc::clone(&running), record, id);
    tokio::spawn(Abortable::new(task, registration));
    Ok(running)
}

/// Generates to the end.
async fn run(
    api: Arc<Api>,
    steps: impl Stream<Item = Result<(StreamEvent, Option<Written>), ApiError>>,
    running: Arc<Running>,
    record: Record,
    id: String,
) {
    let mut steps = std::pin::pin!(steps);
    let mut frames = Frames::default();
    let mut record = Some(record);
    while let Some(step) = steps.next().await {
        let step = match step {
            Ok((event, None)) => {
                if let StreamEvent::InProgress { .. } = event {
                    running.state.lock().response.status = Status::InProgress;
                }
                Ok(event)
            }
            Ok((event, Some(written))) => {
                let Some(record) = record.take() else { return };
                keep(&api, &running, record, written, &id).await.map(|()| event)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &step {
            let message = error.body().error.message;
            let failed = running.end(|response| {
                response.status = Status::Failed;
                response.error = Some(ResponseError { code: "server_error", message });
            });
            if failed && let Some(record) = record.take() {
                settle(&api, &running, record, &[], &id).await.ok();
            }
        }
        running.tell(frames.frame(step));
    }
    running.told.send_replace(true);
}

/// Keeps the whole of a response. Where the store refuses it, it is not lost: the process still has it.
async fn keep(api: &Api, running: &Running, record: Record, written: Written, id: &str) -> Result<(), ApiError> {
    if !running.end(|response| *response = written.response) {
        return Err(ApiError::invalid_response("response_id", "the response was cancelled"));
    }
    settle(api, running, record, &written.items, id).await
}

async fn settle(
    api: &Api,
    running: &Running,
    record: Record,
    items: &[super::types::OutputItem],
    id: &str,
) -> Result<(), ApiError> {
    let record = record.of(&running.response(), items)?;
    api.responses.put(id, RecordState::Done, &record).await?;
    api.responses.leave(id);
    Ok(())
}

/// Cancels a response, and keeps that it was.
pub(super) async fn cancel(api: &Api, id: &str) -> Result<ResponseObject, ApiError> {
    let synchronous = || ApiError::invalid_response("response_id", "Cannot cancel a synchronous response.");
    let Some(running) = api.responses.running(id) else {
        api.responses.get(id).await?;
        return Err(synchronous());
    };
    if !running.cancel() {
        return Err(synchronous());
    }
    let (_, record) = api.responses.get(id).await?;
    settle(api, &running, record, &[], id).await?;
    Ok(running.response())
}
