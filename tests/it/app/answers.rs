//! What comes back: responses that were read to their ends, and streams that are open.

use axum::{
    body::BodyDataStream,
    http::{HeaderMap, header},
};
use futures::StreamExt;
use serde_json::Value;

/// A response, read to its end.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    /// The body of a success.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()
    }

    /// The body.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// `error` of a body.
    pub(crate) fn error(&self) -> Value {
        self.json()["error"].clone()
    }

    /// The events of a stream up to `[DONE]`, which must be its end.
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text);
        assert_eq!(self.headers[header::CONTENT_TYPE], "text/event-stream; charset=utf-8");
        let frames = self.text.strip_suffix("data: [DONE]\n\n").expect("a stream ends with [DONE]");
        frames.split_terminator("\n\n").map(event).collect()
    }
}

fn event(frame: &str) -> Value {
    let data = frame.strip_prefix("data: ").unwrap_or_else(|| panic!("not a frame: {frame:?}"));
    serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"))
}

/// A stream that is still open; dropping it is what a client does that hangs up.
pub(crate) struct Events {
    pub(super) frames: BodyDataStream,
    pub(super) buffer: String,
}

impl Events {
    /// The next event; `None` after `[DONE]`.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((frame, rest)) = self.buffer.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.buffer = rest;
                return if frame == "data: [DONE]" { None } else { Some(event(&frame)) };
            }
            let bytes = self.frames.next().await.expect("a stream ends with [DONE]").unwrap();
            self.buffer.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    /// What is left.
    pub(crate) async fn rest(mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}
