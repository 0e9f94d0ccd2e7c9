//! Bodies that a handler did not read to their end, because it refused the request before.
//!
//! HTTP/1 closes such a connection, and a client that still writes, or sends its next request, meets a reset instead of
//! the answer. So what is left of a body is read and dropped, within bounds.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{ConnectInfo, Request},
};
use http_body_util::BodyExt;

use super::{
    connection::InFlight,
    listener::Peer,
    next::{Answering, Next},
};

/// Most bytes that are read for nothing: the longest body by default, since one for which there is no room beside others is
/// refused unread, and its client is to see why. It takes no memory.
const MOST_BYTES: usize = 1 << 29;
/// Longest time for that.
const LONGEST: Duration = Duration::from_secs(10);

/// Has the bodies of requests read to their end.
pub(super) fn read_out(request: Request, next: impl Next) -> impl Answering {
    let in_flight = request.extensions().get::<ConnectInfo<Peer>>().map(|ConnectInfo(peer)| peer.begin());
    let read_out = |body| Body::new(ReadOut { body: Some(body), in_flight });
    next(request.map(|body| if body.is_end_stream() { body } else { read_out(body) }))
}

/// A body until its end was seen.
struct ReadOut {
    body: Option<Body>,
    /// While it is read, what comes is not taken for the beginning of another request.
    in_flight: Option<InFlight>,
}

impl HttpBody for ReadOut {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(context);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
            self.in_flight = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.as_ref().map_or_else(|| http_body::SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for ReadOut {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let in_flight = self.in_flight.take();
            runtime.spawn(async move {
                let _read = tokio::time::timeout(LONGEST, drop_rest(body)).await;
                drop(in_flight);
            });
        }
    }
}

async fn drop_rest(mut body: Body) {
    let mut left = MOST_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let read = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(read) else { return };
        left = rest;
    }
}
