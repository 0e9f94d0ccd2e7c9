//! Layers around requests: plain functions, each of which is given the next one.
//!
//! All layers of one place are one future in one box. axum's `from_fn` would put each into a box of its own, together with
//! a copy of all that is within it, which is copied again and again until it is there: for a short request, that took as
//! long as its prompt.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{extract::Request, response::Response};
use futures::FutureExt;
use tower::{Layer, Service, ServiceExt};

/// The work of answering a request.
pub(super) trait Answering: Future<Output = Response> + Send + 'static {}

impl<A: Future<Output = Response> + Send + 'static> Answering for A {}

/// Answers a request, within a layer.
///
/// A layer that is no `async fn` does what it does before the answer at once, and its future has no place for the request, which
/// an `async fn` keeps twice.
pub(super) trait Next: FnOnce(Request) -> Self::Answering + Send + 'static {
    /// The work of answering it.
    type Answering: Answering;
}

impl<F, A> Next for F
where
    F: FnOnce(Request) -> A + Send + 'static,
    A: Answering,
{
    type Answering = A;
}

/// All layers of one place.
pub(super) trait Around: Clone + Send + 'static {
    /// Answers a request, for which `next` is the innermost.
    fn answer(self, request: Request, next: impl Next) -> impl Answering;
}

/// Layers as one layer of axum's.
#[derive(Clone)]
pub(super) struct AsLayer<A>(pub(super) A);

impl<A: Around, S> Layer<S> for AsLayer<A> {
    type Service = Surrounded<A, S>;

    fn layer(&self, inner: S) -> Self::Service {
        Surrounded { around: self.0.clone(), inner }
    }
}

/// A service with layers around it.
#[derive(Clone)]
pub(super) struct Surrounded<A, S> {
    around: A,
    inner: S,
}

impl<A, S> Service<Request> for Surrounded<A, S>
where
    A: Around,
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // `oneshot` waits for the service within.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let inner = self.inner.clone();
        let next =
            move |request| inner.oneshot(request).map(|answered| answered.unwrap_or_else(|never| match never {}));
        Box::pin(self.around.clone().answer(request, next).map(Ok))
    }
}
