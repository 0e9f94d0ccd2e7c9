//! Takes notes of what happens to requests, for spans: from the head of a request to the last byte of its answer.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{MatchedPath, Request},
    http::{HeaderValue, Method},
    response::Response,
};
use http_body::{Frame, SizeHint};

use super::next::Next;
use crate::{
    http::error::ErrorName,
    otlp::{TRACEPARENT, TRACESTATE, Tracer},
    request_trace::{self, Answer, RequestTrace},
};

/// The routes whose requests generate. A request to one of them has a span also where it is refused before that shows.
const GENERATING: [&str; 10] = [
    "/v1/chat/completions",
    "/v1/chat/completions/batch",
    "/v1/chat/completions/tokens",
    "/v1/completions",
    "/v1/messages",
    "/v1/responses",
    "/inference/v1/generate",
    "/invocations",
    "/generate",
    "/api/v1/asample",
];

/// Traces a request that may generate, if there is a tracer; the others are no POSTs.
pub(super) async fn follow(tracer: Option<Tracer>, request: Request, next: impl Next) -> Response {
    let trace = tracer.and_then(|tracer| begin(&tracer, &request));
    let Some(trace) = trace else { return next(request).await };
    let response = request_trace::within(Arc::clone(&trace), next(request)).await;
    let error = response.extensions().get::<ErrorName>().map(|ErrorName(name)| *name);
    trace.answered(Answer { status: response.status().as_u16(), error });
    response.map(|body| Body::new(Followed { body, trace }))
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

/// The body of an answer, whose making is a part of the request.
struct Followed {
    body: Body,
    trace: Arc<RequestTrace>,
}

impl HttpBody for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self { body, trace } = &mut *self;
        request_trace::entered(trace, || Pin::new(body).poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
