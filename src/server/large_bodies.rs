//! Requests with large bodies are answered on threads of their own.
//!
//! Reading, checking and taking apart a body of megabytes keeps a thread busy for as long as it takes, and much of it
//! happens in handlers, where nothing else can be done meanwhile. Small requests, and `/health`, would wait for it. The
//! number of these threads bounds how many large bodies are worked on at once. Streams of answers are not their work:
//! the connection reads those itself.

use std::{num::NonZero, sync::OnceLock, thread};

use axum::{
    body::HttpBody,
    extract::Request,
    response::{IntoResponse, Response},
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::JoinSet,
};
use tracing::Instrument;

use super::next::Next;
use crate::{turn::in_flight::inherited, wire::error::ApiError};

/// A body of more bytes counts as large. A smaller one takes a millisecond or two at the most.
const LARGE: u64 = 1 << 16;
/// Threads for what handlers hand on to others.
const BLOCKING_THREADS: usize = 32;

/// Answers requests whose bodies are large, or do not say how large they are, on the threads for them.
pub(super) async fn apply(request: Request, next: impl Next) -> Response {
    let is_small = request.body().size_hint().upper().is_some_and(|bytes| bytes <= LARGE);
    if is_small {
        return next(request).await;
    }
    match body_threads() {
        Ok(threads) => run_on(threads, inherited(next(request))).await,
        Err(error) => ApiError::internal(format_args!("no threads for large bodies: {error}")).into_response(),
    }
}

/// Runs a handler on other threads. Dropping the future ends the handler there, and a panic of the handler goes on
/// here.
async fn run_on(threads: &Handle, handler: impl Future<Output = Response> + Send + 'static) -> Response {
    let mut task = JoinSet::new();
    task.spawn_on(handler.in_current_span(), threads);
    match task.join_next().await {
        Some(Ok(response)) => response,
        Some(Err(error)) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => ApiError::internal(error).into_response(),
        },
        None => ApiError::internal("a request was lost").into_response(),
    }
}

/// The threads. They are made for the first large body and last as long as the process, since work that was begun there
/// may.
fn body_threads() -> Result<&'static Handle, &'static std::io::Error> {
    static THREADS: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let made = THREADS.get_or_init(|| {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        Builder::new_multi_thread()
            .worker_threads((cores / 2).max(2))
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("large-bodies")
            .enable_all()
            .build()
    });
    made.as_ref().map(Runtime::handle)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use axum::{
        Router,
        body::Body,
        middleware::{self, from_fn},
        routing::post,
    };
    use tower::ServiceExt;

    use super::*;

    fn request(bytes: usize) -> Request {
        Request::post("/").body(Body::from(vec![b' '; bytes])).unwrap()
    }

    async fn around(request: Request, next: middleware::Next) -> Response {
        apply(request, |request| next.run(request)).await
    }

    async fn thread_name() -> String {
        thread::current().name().unwrap_or_default().to_owned()
    }

    async fn answered_on(request: Request) -> String {
        let app = Router::new().route("/", post(thread_name)).layer(from_fn(around));
        let response = app.oneshot(request).await.unwrap();
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 10).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn only_large_bodies_are_answered_on_the_threads_for_them() {
        assert_ne!(answered_on(request(1 << 16)).await, "large-bodies");
        assert_eq!(answered_on(request((1 << 16) + 1)).await, "large-bodies");
        let frames = futures::stream::once(async { Ok::<_, std::io::Error>("{}") });
        let unsized_body = Request::post("/").body(Body::from_stream(frames)).unwrap();
        assert_eq!(answered_on(unsized_body).await, "large-bodies");
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "as many as there are requests")]
    async fn small_requests_are_answered_while_every_thread_for_large_ones_is_busy() {
        let (release, released) = mpsc::channel::<()>();
        let (begun, begins) = tokio::sync::mpsc::unbounded_channel();
        let released = std::sync::Arc::new(std::sync::Mutex::new(released));
        let blocking = move || {
            let (begun, released) = (begun.clone(), std::sync::Arc::clone(&released));
            async move {
                begun.send(()).unwrap();
                // Keeps its thread, as work on a large body does, until the test lets go.
                let _ = released.lock().unwrap().recv();
                "done"
            }
        };
        let app = Router::new().route("/block", post(blocking)).route("/", post(thread_name)).layer(from_fn(around));
        let mut begins = begins;
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let large: Vec<_> = (0..(cores / 2).max(2))
            .map(|_| {
                let request = Request::post("/block").body(Body::from(vec![b' '; 1 << 17])).unwrap();
                tokio::spawn(app.clone().oneshot(request))
            })
            .collect();
        for _ in &large {
            begins.recv().await.unwrap();
        }
        let small = app.oneshot(request(2)).await.unwrap();
        assert!(small.status().is_success());
        drop(release);
        for answer in large {
            assert!(answer.await.unwrap().unwrap().status().is_success());
        }
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "as many as there are requests")]
    async fn a_request_that_is_dropped_ends_where_it_is_answered() {
        let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
        let waiting = move || {
            let begun = begun.clone();
            async move {
                // Dropped with the handler.
                let _held = begun.clone();
                begun.send(()).unwrap();
                std::future::pending::<&str>().await
            }
        };
        let app = Router::new().route("/", post(waiting)).layer(from_fn(around));
        let answer = tokio::spawn(app.oneshot(request(1 << 17)));
        begins.recv().await.unwrap();
        answer.abort();
        assert!(answer.await.unwrap_err().is_cancelled());
        assert_eq!(begins.recv().await, None, "nothing of the handler is left");
    }

    #[tokio::test]
    async fn a_panic_goes_on_where_it_is_caught() {
        async fn panics() -> &'static str {
            panic!("on purpose")
        }
        let app = Router::new().route("/", post(panics)).layer(from_fn(around));
        let answer = tokio::spawn(app.oneshot(request(1 << 17)));
        let panic = answer.await.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    }
}
