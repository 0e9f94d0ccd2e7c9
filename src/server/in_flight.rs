//! Requests that are being answered, so that connections are known to be in use.

use axum::extract::{ConnectInfo, Request};
use futures::FutureExt;

use super::{
    listener::Peer,
    next::{Answering, Next},
};
use crate::http::held_body::holding;

/// Counts a request on its connection until its answer is handed over.
pub(super) fn count(request: Request, next: impl Next) -> impl Answering {
    let in_flight = request.extensions().get::<ConnectInfo<Peer>>().map(|ConnectInfo(peer)| peer.begin());
    let counted = |body| match in_flight {
        Some(in_flight) => holding(body, in_flight),
        None => body,
    };
    next(request).map(|response| response.map(counted))
}
