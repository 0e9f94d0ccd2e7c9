//! What is counted, timed and logged of every request.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use axum::{
    body::{Body, BodyDataStream, Bytes, HttpBody},
    extract::{ConnectInfo, MatchedPath, Request},
    http::{HeaderMap, header},
};
use futures::{FutureExt, Stream, StreamExt};
use metrics::Label;
use tracing::{Instrument, Span};

use super::{
    listener::Peer,
    method,
    next::{Answering, Next},
};

/// Requests that are not counted: scrapers and probes would outnumber all others.
const EXCLUDED: [&str; 8] = ["/metrics", "/health", "/livez", "/readyz", "/load", "/ping", "/version", "/server_info"];

/// One request, counted once its last byte is out, or its client is gone.
struct Sample {
    started: Instant,
    handler: Arc<str>,
    method: &'static str,
    status: &'static str,
    request_bytes: f64,
    response_bytes: f64,
}

impl Drop for Sample {
    fn drop(&mut self) {
        let method = Label::new("method", self.method);
        let handler = Label::new("handler", Arc::clone(&self.handler));
        let labels = vec![method.clone(), Label::new("status", self.status), handler.clone()];
        metrics::counter!("http_requests_total", labels).increment(1);
        let by_handler = vec![handler.clone()];
        metrics::histogram!("http_request_size_bytes", by_handler.clone()).record(self.request_bytes);
        metrics::histogram!("http_response_size_bytes", by_handler).record(self.response_bytes);
        let seconds = self.started.elapsed().as_secs_f64();
        metrics::histogram!("http_request_duration_highr_seconds").record(seconds);
        metrics::histogram!("http_request_duration_seconds", vec![handler, method]).record(seconds);
    }
}

/// A stream that is counted when it ends, however it ends.
struct Counted {
    frames: BodyDataStream,
    _sample: Sample,
}

impl Stream for Counted {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.frames.poll_next_unpin(context)
    }
}

/// The metrics of prometheus-fastapi-instrumentator, as vLLM has them.
pub(super) fn measure(request: Request, next: impl Next) -> impl Answering {
    let sample = sample(&request);
    // Where the client goes before there is an answer, this future is dropped, and the sample with it.
    next(request).map(move |response| {
        let Some(mut sample) = sample else { return response };
        sample.status = class(response.status().as_u16());
        if let Some(bytes) = response.body().size_hint().exact() {
            #[expect(clippy::cast_precision_loss, reason = "no response has 2^52 bytes")]
            let bytes = bytes as f64;
            sample.response_bytes = bytes;
            return response;
        }
        response.map(|body| Body::from_stream(Counted { frames: body.into_data_stream(), _sample: sample }))
    })
}

/// What is known of a request that is counted before it is answered.
fn sample(request: &Request) -> Option<Sample> {
    // Unknown methods share one label, and unknown paths another: clients must not be able to make new ones.
    let method = method::label(request.method());
    let handler: Arc<str> = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).into();
    let request_bytes = content_length(request.headers());
    let is_counted = !EXCLUDED.iter().any(|path| handler.contains(path));
    let status = class(LEFT);
    is_counted.then(|| Sample { started: Instant::now(), handler, method, status, request_bytes, response_bytes: 0.0 })
}

/// The status of a request whose client went before there was an answer, which nobody is sent: nginx's, and no fault of the server.
const LEFT: u16 = 499;

/// What the statuses from a hundred on are called where requests are counted.
fn class(status: u16) -> &'static str {
    const CLASSES: [&str; 9] = ["1xx", "2xx", "3xx", "4xx", "5xx", "6xx", "7xx", "8xx", "9xx"];
    CLASSES[usize::from(status / 100).saturating_sub(1).min(CLASSES.len() - 1)]
}

fn content_length(headers: &HeaderMap) -> f64 {
    let text = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

/// Which requests get a line of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessLog {
    /// Whether any do.
    pub enabled: bool,
    /// Paths that get none.
    pub silent_paths: Vec<String>,
}

/// The line of a request, which is logged once it is answered, or its client is gone.
struct Line {
    request: String,
    status: String,
}

impl Drop for Line {
    fn drop(&mut self) {
        let Self { request, status } = self;
        tracing::info!(target: "tito::access", "{request} {status}");
    }
}

/// Logs a line for every response, as uvicorn does, and one for every request that is left before it has one.
pub(super) fn log<N: Next>(log: &AccessLog, request: Request, next: N) -> impl Answering + use<N> {
    let is_silent = !log.enabled || log.silent_paths.iter().any(|path| path == request.uri().path());
    let line = (!is_silent).then(|| {
        let peer = request.extensions().get::<ConnectInfo<Peer>>().map_or_else(String::new, |peer| peer.0.to_string());
        let request = format!("{peer} - \"{} {} {:?}\"", request.method(), request.uri(), request.version());
        Line { request, status: format!("{LEFT} Client Closed Request") }
    });
    next(request).map(move |response| {
        if let Some(mut line) = line {
            line.status = response.status().to_string();
        }
        response
    })
}

/// Gives every request a span if `wanted`, in which its generations log; the handler fills the id in.
pub(super) fn span(wanted: bool, request: Request, next: impl Next) -> impl Answering {
    let span = if wanted { tracing::info_span!("request", id = tracing::field::Empty) } else { Span::none() };
    next(request).instrument(span)
}
