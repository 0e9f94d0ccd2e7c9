//! The events of a response's stream, in the order of their sequence numbers. There is no `[DONE]`.

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use std::{convert::Infallible, sync::Arc};

use crate::{
    http::sse,
    records::Running,
    wire::{
        error::ApiError,
        responses::events::{Numbered, StreamEvent},
    },
};

impl StreamEvent {
    /// Makes the event of an error, which is the same as in a JSON answer, except that the status line has been sent
    /// already.
    fn error(error: &ApiError) -> Self {
        let error = error.event().error;
        Self::Error { code: error.kind.to_owned(), message: error.message.clone(), param: error.param.clone(), error }
    }
}

/// Writes the frames of a stream.
#[derive(Default)]
pub(super) struct Frames {
    next: usize,
}

impl Frames {
    /// Writes the frame of the next step.
    pub(super) fn frame(&mut self, step: Result<StreamEvent, ApiError>) -> Bytes {
        let event = step.unwrap_or_else(|error| StreamEvent::error(&error));
        let name = event.name();
        let numbered = Numbered { event, sequence_number: self.next };
        self.next += 1;
        let data = serde_json::to_string(&numbered).unwrap_or_default();
        Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
    }
}

/// Answers with the events; the first error is the last of them.
pub(super) fn respond(steps: impl Stream<Item = Result<StreamEvent, ApiError>> + Send + 'static) -> Response {
    let mut frames = Frames::default();
    let frames = steps.map(move |step| Ok::<_, Infallible>(frames.frame(step)));
    sse::response(Body::from_stream(frames))
}

/// Answers with the events of a response that has ended, from the one after number `after` on.
pub(super) fn replay(frames: &[Bytes], after: Option<usize>) -> Response {
    let first = after.map_or(0, |after| after.saturating_add(1));
    let rest: Vec<_> = frames.get(first..).unwrap_or_default().iter().cloned().map(Ok::<_, Infallible>).collect();
    sse::response(Body::from_stream(futures::stream::iter(rest)))
}

/// Answers with the events of a response that is generated in the background, from the one after number `after` on;
/// `None` if the response was not made to be streamed.
pub(super) fn follow(running: &Arc<Running>, after: Option<usize>) -> Option<Response> {
    let frames = running.frames(after)?.map(Ok::<_, Infallible>);
    Some(sse::response(Body::from_stream(frames)))
}
