//! Responses that are generated while no client waits.
//!
//! One task begins, generates and ends such a response, and only this task writes its record. Whoever wants to end the
//! response asks the task, and waits.

use std::sync::Arc;

use futures::{Stream, StreamExt};
use tokio::sync::oneshot;

use super::{
    output::{Writer, Written},
    steps,
    stream::Frames,
};
use crate::{
    generation::Event,
    records::{IdReservation, Record, ResponseKey, Running},
    state::{Api, Served},
    store::RecordState,
    wire::{
        error::ApiError,
        responses::{
            events::StreamEvent,
            types::{OutputItem, ResponseError, ResponseObject, Status},
        },
    },
};

/// Everything that is needed to generate a response and to keep it.
struct Task {
    api: Arc<Api>,
    running: Arc<Running>,
    reservation: IdReservation,
    record: Record,
}

/// Starts to generate a response, which can be found under its id from now on, and which counts as `served` until it ends. It is
/// returned together with a copy of the response as it was at the start.
pub(super) async fn start(
    api: Arc<Api>,
    events: impl Stream<Item = Result<(usize, Event), ApiError>> + Send + 'static,
    writer: Writer,
    (reservation, record): (IdReservation, Record),
    (streams, served): (bool, Option<Served>),
) -> Result<(Arc<Running>, ResponseObject), ApiError> {
    let queued = writer.response().clone();
    let running = Arc::new(Running::new(queued.clone(), streams));
    let (tell_begun, begun) = oneshot::channel();
    let task = Task { api, running: Arc::clone(&running), reservation, record };
    // The request may end at any time; the response must not end with it.
    tokio::spawn(async move {
        task.run(steps(events, writer), tell_begun).await;
        drop(served);
    });
    begun.await.map_err(ApiError::internal)??;
    Ok((running, queued))
}

impl Task {
    /// Generates the response to its end, and keeps it.
    async fn run(
        mut self,
        steps: impl Stream<Item = Result<(StreamEvent, Option<Written>), ApiError>> + Send,
        tell_begun: oneshot::Sender<Result<(), ApiError>>,
    ) {
        self.reservation.enter(Arc::clone(&self.running));
        let response = self.running.response();
        // A store that cannot keep the response is found out now, rather than when the answer is there.
        let kept = self.keep(RecordState::InProgress, &response, &[]).await;
        let refused = kept.is_err();
        drop(tell_begun.send(kept));
        if !refused {
            self.generate(steps).await;
        }
        self.api.responses.keep_events(&self.reservation, &self.running);
        self.running.end();
    }

    async fn generate(&mut self, steps: impl Stream<Item = Result<(StreamEvent, Option<Written>), ApiError>> + Send) {
        let mut steps = std::pin::pin!(steps);
        let mut frames = Frames::default();
        loop {
            let step = tokio::select! {
                // The stream is polled first, so that there is a generation that can be ended.
                biased;
                step = steps.next() => step,
                () = self.running.cancelled() => {
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

    /// Applies an event to the response; the whole response is kept before anybody sees it.
    async fn advance(&mut self, event: &StreamEvent, written: Option<Written>) -> Result<(), ApiError> {
        if let StreamEvent::InProgress { .. } = event {
            self.running.change(|response| response.status = Status::InProgress);
        }
        let Some(Written { response, items, .. }) = written else { return Ok(()) };
        self.keep(RecordState::Done, &response, &items).await?;
        self.running.change(|before| *before = response);
        Ok(())
    }

    /// Keeps the fact that the response failed. If the store refuses even that, the record stays unfinished, which
    /// means the same.
    async fn fail(&mut self, error: &ApiError) {
        let mut response = self.running.response();
        response.status = Status::Failed;
        response.error = Some(ResponseError { code: "server_error", message: error.body().error.message });
        if self.keep(RecordState::Done, &response, &[]).await.is_err() {
            tracing::error!(id = self.reservation.key().id(), "a response that failed could not be kept");
        }
        self.running.change(|before| *before = response);
    }

    async fn keep(
        &mut self,
        state: RecordState,
        response: &ResponseObject,
        items: &[OutputItem],
    ) -> Result<(), ApiError> {
        let record = self.record.updated(response, items)?;
        self.api.responses.put(&self.reservation, state, record).await
    }
}

/// Cancels a response that is generated in the background; the output so far is kept.
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
