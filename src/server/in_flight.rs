//! Requests that are being answered, so that connections are known to be in use.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{ConnectInfo, Request},
};
use futures::FutureExt;

use super::{
    connection::InFlight,
    listener::Peer,
    next::{Answering, Next},
};

/// Counts a request on its connection until its answer is handed over.
pub(super) fn count(request: Request, next: impl Next) -> impl Answering {
    let in_flight = request.extensions().get::<ConnectInfo<Peer>>().map(|ConnectInfo(peer)| peer.begin());
    let counted = |body| match in_flight {
        Some(in_flight) => Body::new(Counted { body, _in_flight: in_flight }),
        None => body,
    };
    next(request).map(|response| response.map(counted))
}

struct Counted {
    body: Body,
    _in_flight: InFlight,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
