//! Counts and times requests by route.

use std::time::Instant;

use axum::{
    extract::{MatchedPath, Request},
    middleware::Next,
    response::Response,
};

/// `http_requests_total` and `http_request_duration_seconds`, with the labels of vLLM's instrumentation; the duration
/// ends where the body begins.
pub(super) async fn record(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().to_string();
    // Unknown paths share one label: clients must not be able to make new ones.
    let handler = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    let status = format!("{}xx", response.status().as_u16() / 100);
    metrics::counter!("http_requests_total", "handler" => handler.clone(), "method" => method.clone(), "status" => status)
        .increment(1);
    metrics::histogram!("http_request_duration_seconds", "handler" => handler, "method" => method)
        .record(started.elapsed().as_secs_f64());
    response
}
