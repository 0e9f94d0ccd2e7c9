//! Takes notes of what happens to requests, for spans: from the head of a request to the last byte of its answer.

use std::sync::Arc;

use axum::{
    body::HttpBody,
    extract::{MatchedPath, Request},
    http::{HeaderValue, Method},
    response::Response,
};

use super::next::Next;
use crate::{
    api::GENERATING,
    http::{error::ErrorName, held_body::polled_by},
    otlp::{TRACEPARENT, TRACESTATE, Tracer},
    request_trace::{self, Answer, RequestTrace},
};

/// Traces a request that may generate, if there is a tracer; the others are no POSTs.
pub(super) async fn follow(tracer: Option<Tracer>, request: Request, next: impl Next) -> Response {
    let trace = tracer.and_then(|tracer| begin(&tracer, &request));
    let Some(trace) = trace else { return next(request).await };
    let response = request_trace::within(Arc::clone(&trace), next(request)).await;
    let error = response.extensions().get::<ErrorName>().map(|ErrorName(name)| *name);
    trace.answered(Answer { status: response.status().as_u16(), error });
    // The making of its body is a part of the request.
    response
        .map(|body| polled_by(body, move |body, context| request_trace::entered(&trace, || body.poll_frame(context))))
}

fn begin(tracer: &Tracer, request: &Request) -> Option<Arc<RequestTrace>> {
    if request.method() != Method::POST {
        return None;
    }
    let route = request.extensions().get::<MatchedPath>()?;
    let headers = |name| request.headers().get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>();
    let trace = tracer.begin(route.as_str(), &headers(TRACEPARENT), &headers(TRACESTATE))?;
    if GENERATING.contains(&route.as_str()) {
        trace.generates();
    }
    Some(trace)
}
