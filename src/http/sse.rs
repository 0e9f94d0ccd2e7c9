//! Server-sent events: their frames, their end, and errors that occur after the status line.

use std::convert::Infallible;

use axum::{
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use serde::Serialize;

use crate::{generation::Event, wire::error::ApiError};

/// Makes the chunks of one endpoint's streams.
pub(crate) trait Chunks: Send + 'static {
    /// The content of a frame.
    type Chunk: Serialize + Send;

    /// Returns the chunks that one event of choice `index` becomes.
    fn push(&mut self, index: usize, event: Event) -> Result<Vec<Self::Chunk>, ApiError>;

    /// Returns the chunk that follows when all choices have ended.
    fn last(&self) -> Option<Self::Chunk>;
}

/// Writes the frame of one chunk.
fn frame(chunk: &impl Serialize) -> Result<Bytes, ApiError> {
    // A chunk of one token fits; growing the buffer would cost as much as writing the chunk.
    let mut bytes = Vec::with_capacity(512);
    bytes.extend_from_slice(b"data: ");
    serde_json::to_writer(&mut bytes, chunk).map_err(ApiError::internal)?;
    bytes.extend_from_slice(b"\n\n");
    Ok(Bytes::from(bytes))
}

/// Answers with the chunks of `events`, then `[DONE]`; the first error is sent as a frame and ends the stream.
pub(crate) fn respond(
    events: impl Stream<Item = Result<(usize, Event), ApiError>> + Send + 'static,
    chunks: impl Chunks,
) -> Response {
    let mut frames = Box::pin(frames(events, chunks));
    let body = async_stream::stream! {
        while let Some(item) = frames.next().await {
            match item {
                Ok(bytes) => yield Ok::<_, Infallible>(bytes),
                Err(error) => {
                    // The error is the same as in a JSON answer, except that status and headers have been sent already.
                    yield Ok(frame(&error.event()).unwrap_or_default());
                    break;
                }
            }
        }
        yield Ok(Bytes::from_static(b"data: [DONE]\n\n"));
    };
    response(Body::from_stream(body))
}

/// Makes a response whose body is frames.
pub(crate) fn response(frames: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        // This keeps nginx from holding tokens back.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, frames).into_response()
}

fn frames(
    events: impl Stream<Item = Result<(usize, Event), ApiError>> + Send + 'static,
    mut chunks: impl Chunks,
) -> impl Stream<Item = Result<Bytes, ApiError>> + Send + 'static {
    async_stream::try_stream! {
        let mut events = std::pin::pin!(events);
        while let Some(item) = events.next().await {
            let (index, event) = item?;
            for chunk in chunks.push(index, event)? {
                yield frame(&chunk)?;
            }
        }
        if let Some(chunk) = chunks.last() {
            yield frame(&chunk)?;
        }
    }
}
