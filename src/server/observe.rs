//! What is counted, timed and logged of every request.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use axum::{
    body::{Body, BodyDataStream, Bytes, HttpBody},
    extract::{ConnectInfo, MatchedPath, Request, State},
    http::{HeaderMap, header},
    middleware::Next,
    response::Response,
};
use futures::{Stream, StreamExt};
use tracing::Instrument;

use super::{listener::Peer, method};

/// Requests that are not counted: scrapers and probes would outnumber all others.
const EXCLUDED: [&str; 8] = ["/metrics", "/health", "/livez", "/readyz", "/load", "/ping", "/version", "/server_info"];

/// One request, counted once its last byte is out.
struct Sample {
    started: Instant,
    handler: String,
    method: &'static str,
    status: String,
    request_bytes: f64,
    response_bytes: f64,
}

impl Sample {
    fn record(&self) {
        let Self { handler, method, status, .. } = self;
        let method = || (*method).to_owned();
        let labels = [("method", method()), ("status", status.clone()), ("handler", handler.clone())];
        metrics::counter!("http_requests_total", &labels).increment(1);
        let by_handler = [("handler", handler.clone())];
        metrics::histogram!("http_request_size_bytes", &by_handler).record(self.request_bytes);
        metrics::histogram!("http_response_size_bytes", &by_handler).record(self.response_bytes);
        let seconds = self.started.elapsed().as_secs_f64();
        metrics::histogram!("http_request_duration_highr_seconds").record(seconds);
        let labels = [("handler", handler.clone()), ("method", method())];
        metrics::histogram!("http_request_duration_seconds", &labels).record(seconds);
    }
}

/// A stream that is counted when it ends, however it ends.
struct Counted {
    frames: BodyDataStream,
    sample: Sample,
}

impl Stream for Counted {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.frames.poll_next_unpin(context)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.sample.record();
    }
}

/// The metrics of prometheus-fastapi-instrumentator, as vLLM has them.
pub(super) async fn measure(request: Request, next: Next) -> Response {
    let started = Instant::now();
    // Unknown methods share one label, and unknown paths another: clients must not be able to make new ones.
    let method = method::label(request.method());
    let handler = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let request_bytes = content_length(request.headers());
    let response = next.run(request).await;
    if EXCLUDED.iter().any(|path| handler.contains(path)) {
        return response;
    }
    let status = format!("{}xx", response.status().as_u16() / 100);
    let known = response.body().size_hint().exact();
    #[expect(clippy::cast_precision_loss, reason = "no response has 2^52 bytes")]
    let response_bytes = known.unwrap_or(0) as f64;
    let sample = Sample { started, handler, method, status, request_bytes, response_bytes };
    if known.is_some() {
        sample.record();
        return response;
    }
    response.map(|body| Body::from_stream(Counted { frames: body.into_data_stream(), sample }))
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

/// Logs a line for every response, as uvicorn does.
pub(super) async fn log(State(log): State<Arc<AccessLog>>, request: Request, next: Next) -> Response {
    if log.silent_paths.iter().any(|path| path == request.uri().path()) {
        return next.run(request).await;
    }
    let peer = request.extensions().get::<ConnectInfo<Peer>>().map_or_else(String::new, |peer| peer.0.to_string());
    let line = format!("{} {} {:?}", request.method(), request.uri(), request.version());
    let response = next.run(request).await;
    tracing::info!(target: "tito::access", "{peer} - \"{line}\" {}", response.status());
    response
}

/// Gives every request a span, in which its generations log; the handler fills the id in.
pub(super) async fn span(request: Request, next: Next) -> Response {
    let span = tracing::info_span!("request", id = tracing::field::Empty);
    next.run(request).instrument(span).await
}
