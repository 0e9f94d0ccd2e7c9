//! Comments in streams that are silent for long, for proxies that close connections which are.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::header,
    response::Response,
};
use futures::{FutureExt, StreamExt};

use super::next::{Answering, Next};

/// The comment, as vLLM writes it.
const COMMENT: &[u8] = b": keep-alive\n\n";

/// Adds comments to event streams, if there is an interval for them.
pub(super) fn apply(interval: Option<Duration>, request: Request, next: impl Next) -> impl Answering {
    next(request).map(move |response| commented(interval, response))
}

fn commented(interval: Option<Duration>, response: Response) -> Response {
    let Some(interval) = interval else { return response };
    let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !media_type.is_some_and(|media_type| media_type.starts_with("text/event-stream")) {
        return response;
    }
    response.map(|body| {
        let mut frames = body.into_data_stream();
        // Each frame is a whole event, so a comment may stand between any two.
        Body::from_stream(async_stream::stream! {
            loop {
                match tokio::time::timeout(interval, frames.next()).await {
                    Ok(Some(frame)) => yield frame,
                    Ok(None) => break,
                    Err(_) => yield Ok(Bytes::from_static(COMMENT)),
                }
            }
        })
    })
}
