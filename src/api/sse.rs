//! Server-sent events: frames, the end, and errors after the status line.

use std::convert::Infallible;

use axum::{
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use serde::Serialize;

use super::error::ApiError;

/// A `data:` frame, or the error that ends the stream.
pub(super) type Frame = Result<Bytes, ApiError>;

/// Frames one chunk.
pub(super) fn frame(chunk: &impl Serialize) -> Frame {
    // A chunk of one token fits; a buffer that grows with it costs as much as writing the chunk.
    let mut bytes = Vec::with_capacity(512);
    bytes.extend_from_slice(b"data: ");
    serde_json::to_writer(&mut bytes, chunk).map_err(ApiError::internal)?;
    bytes.extend_from_slice(b"\n\n");
    Ok(Bytes::from(bytes))
}

/// Answers with a stream of frames, then `[DONE]`; the first error is sent as a frame and ends the stream.
pub(super) fn respond(frames: impl Stream<Item = Frame> + Send + 'static) -> Response {
    let mut frames = Box::pin(frames);
    let body = async_stream::stream! {
        while let Some(item) = frames.next().await {
            match item {
                Ok(bytes) => yield Ok::<_, Infallible>(bytes),
                Err(error) => {
                    // The same table as for JSON answers; only the status line is gone already.
                    yield Ok(frame(&error.body()).unwrap_or_default());
                    break;
                }
            }
        }
        yield Ok(Bytes::from_static(b"data: [DONE]\n\n"));
    };
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        // nginx would hold tokens back.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(body)).into_response()
}
