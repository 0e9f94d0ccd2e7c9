//! Server-sent events with names, as Anthropic frames them: no `[DONE]`, and an error is an event.

use std::convert::Infallible;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use serde::Serialize;

use super::{blocks::Blocks, error::MessagesErrorBody};
use crate::{generation::Event, http::sse, wire::error::ApiError};

/// Answers with the events of a message.
pub(super) fn respond(
    events: impl Stream<Item = Result<(usize, Event), ApiError>> + Send + 'static,
    mut blocks: Blocks,
) -> Response {
    let body = async_stream::stream! {
        let mut events = Box::pin(events);
        while let Some(item) = events.next().await {
            let written = match item {
                Ok((_, event)) => frames(&mut blocks, event),
                Err(error) => Err(error),
            };
            match written {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => yield Ok::<_, Infallible>(Bytes::from(bytes)),
                Err(error) => {
                    let mut bytes = Vec::new();
                    // A body that consists of strings can always be written as JSON.
                    drop(frame("error", &MessagesErrorBody::event(&error), &mut bytes));
                    yield Ok(Bytes::from(bytes));
                    break;
                }
            }
        }
    };
    sse::response(Body::from_stream(body))
}

/// Writes whole frames, because a comment may follow any of them.
fn frames(blocks: &mut Blocks, event: Event) -> Result<Vec<u8>, ApiError> {
    if let Event::Delta(delta) = &event
        && delta.reasoning.is_none()
    {
        blocks.count_calls("streaming", !delta.tool_calls.is_empty());
    }
    let mut bytes = Vec::new();
    for event in blocks.push(event) {
        frame(event.name(), &event, &mut bytes)?;
    }
    Ok(bytes)
}

fn frame(name: &str, data: &impl Serialize, bytes: &mut Vec<u8>) -> Result<(), ApiError> {
    bytes.extend_from_slice(format!("event: {name}\ndata: ").as_bytes());
    serde_json::to_writer(&mut *bytes, data).map_err(ApiError::internal)?;
    bytes.extend_from_slice(b"\n\n");
    Ok(())
}
