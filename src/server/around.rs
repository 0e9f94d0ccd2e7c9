//! What is around requests, layer by layer, in one future for each of three: a port, the API's paths, and a route.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use futures::{FutureExt, future::Either};

use super::{
    auth::{self, Doors},
    cors::{self, Cors},
    dialect, in_flight, keep_alive, large_bodies,
    limit::{self, Limits},
    method,
    next::{Answering, Around, Next},
    observe::{self, AccessLog},
    reading, request_id, scheme, slow_body, traces, unread, unsent,
};
use crate::{http::error, otlp::Tracer, wire::error::ApiError};

/// What is around the requests of every port.
#[derive(Clone)]
pub(super) struct AroundPort {
    pub(super) access_log: Arc<AccessLog>,
    pub(super) stream_stall_timeout: Option<Duration>,
}

impl Around for AroundPort {
    /// A line of the log for each request, and what its connection is told of it.
    fn answer(self, request: Request, next: impl Next) -> impl Answering {
        let Self { access_log, stream_stall_timeout } = self;
        let bounded = |request| method::bounded(request, next);
        let with_retry = |request| bounded(request).map(error::say_retry_by_status);
        let logged = move |request| observe::log(&access_log, request, with_retry);
        let taken = move |request| unsent::apply(stream_stall_timeout, request, logged);
        let read_out = |request| unread::read_out(request, taken);
        in_flight::count(request, read_out)
    }
}

/// What is around the requests of a port that asks for keys, within that.
#[derive(Clone)]
pub(super) struct AroundKeyed(pub(super) Arc<Doors>);

impl Around for AroundKeyed {
    fn answer(self, request: Request, next: impl Next) -> impl Answering {
        auth::require_key(&self.0, request, next)
    }
}

/// What is around an answer that may panic, and has nothing else around it.
#[derive(Clone)]
pub(super) struct Caught;

impl Around for Caught {
    fn answer(self, request: Request, next: impl Next) -> impl Answering {
        caught(next(request))
    }
}

/// What is around the requests of the API's port, whether or not there is such a path.
#[derive(Clone)]
pub(super) struct AroundApi {
    pub(super) port: AroundPort,
    pub(super) request_ids: bool,
    pub(super) doors: Arc<Doors>,
    pub(super) cors: Arc<Cors>,
    pub(super) request_spans: bool,
    pub(super) stream_comments: Option<Duration>,
}

impl Around for AroundApi {
    /// The order is vLLM's: whoever has no key learns nothing else.
    fn answer(self, request: Request, next: impl Next) -> impl Answering {
        let Self { port, request_ids, doors, cors, request_spans, stream_comments } = self;
        let marked = |request| scheme::mark(request, next);
        let commented = move |request| keep_alive::apply(stream_comments, request, marked);
        let spanned = move |request| observe::span(request_spans, request, commented);
        let shared = |request| cors::apply(cors, request, spanned);
        let admitted = move |request| auth::require_key(&doors, request, shared);
        let told = |request| dialect::apply(request, admitted);
        let named = move |request| request_id::add(request_ids, request, told);
        port.answer(request, named)
    }
}

/// What is around the requests of a route.
#[derive(Clone)]
pub(super) struct AroundRoute {
    pub(super) request_patience: Duration,
    /// There are none for weights, which are longer than any request and take no place among requests.
    pub(super) limits: Option<Limits>,
    pub(super) tracer: Option<Tracer>,
}

impl Around for AroundRoute {
    fn answer(self, request: Request, next: impl Next) -> impl Answering {
        let Self { request_patience, limits, tracer } = self;
        let caught = |request| caught(next(request));
        // Within the layers that move a request to other threads: its notes belong to its task.
        let read = |request| reading::tell(request, caught);
        let traced = |request| traces::follow(tracer, request, read);
        let Some(limits) = limits else {
            let timed = move |request| slow_body::apply(request_patience, request, traced);
            return Either::Left(observe::measure(request, timed));
        };
        let limited = |request| limit::apply(limits, request, traced);
        let timed = move |request| slow_body::apply(request_patience, request, limited);
        // Outside of the layer that holds a body's bytes for as long as a task works on it, and where the length is still known.
        let on_threads = |request| large_bodies::apply(request, timed);
        Either::Right(observe::measure(request, on_threads))
    }
}

/// Answers with an error where the answering panics.
async fn caught(answering: impl Future<Output = Response>) -> Response {
    AssertUnwindSafe(answering).catch_unwind().await.unwrap_or_else(|panic| answer_panic(&*panic))
}

fn answer_panic(panic: &(dyn Any + Send)) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    ApiError::internal(format_args!("handler panicked: {}", text.unwrap_or("no message"))).into_response()
}

#[cfg(test)]
mod tests {
    use crate::turn::in_flight::BytesInFlight;

    use super::*;

    /// A layer that held what is within it twice would double the whole, and so would the next one.
    #[test]
    fn the_futures_of_layers_add_up_and_do_not_multiply() {
        let port = AroundPort { access_log: Arc::default(), stream_stall_timeout: None };
        let doors = Arc::new(Doors { api: auth::ApiKeys::default(), admin: None, admin_paths: Arc::new([]) });
        let (request_ids, request_spans, stream_comments) = (true, true, Some(Duration::from_secs(1)));
        let api = AroundApi { port, request_ids, doors, cors: Arc::default(), request_spans, stream_comments };
        let limits = Limits { most: 1, in_flight: BytesInFlight::new(1) };
        let route = AroundRoute { request_patience: Duration::from_secs(1), limits: Some(limits), tracer: None };
        let next = |_| std::future::ready(Response::default());
        let request = || Request::new(axum::body::Body::empty());
        let sizes = [size_of_val(&api.answer(request(), next)), size_of_val(&route.answer(request(), next))];
        let layers = 14;
        assert!(sizes.iter().all(|size| *size <= layers * 5 * size_of::<Request>()), "{sizes:?}");
    }
}
