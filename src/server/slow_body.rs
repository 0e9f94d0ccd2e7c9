//! Bodies of requests that stop coming: the request is refused with 408.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::Request,
    response::IntoResponse,
};
use futures::FutureExt;
use tokio::time::{Sleep, sleep};

use super::next::{Answering, Next};
use crate::wire::error::ApiError;

/// Refuses requests of whose bodies nothing came for as long as `patience` while they were waited for.
pub(super) fn apply(patience: Duration, request: Request, next: impl Next) -> impl Answering {
    let stopped = (!request.body().is_end_stream()).then(|| Arc::new(AtomicBool::new(false)));
    let request = request.map(|body| match stopped.clone() {
        Some(stopped) => Body::new(Timed { body, patience, silence: None, stopped }),
        None => body,
    });
    next(request).map(move |response| {
        if !stopped.is_some_and(|stopped| stopped.load(Ordering::Relaxed)) {
            return response;
        }
        metrics::counter!("tito:stalled_total", "what" => "body").increment(1);
        ApiError::body_too_slow(patience.as_secs()).into_response()
    })
}

/// A body of which something has to come.
struct Timed {
    body: Body,
    patience: Duration,
    silence: Option<Pin<Box<Sleep>>>,
    stopped: Arc<AtomicBool>,
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.silence = None;
            return Poll::Ready(frame);
        }
        let patience = self.patience;
        let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(silence.as_mut().poll(context));
        self.stopped.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err(axum::Error::new(std::io::Error::from(std::io::ErrorKind::TimedOut)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
