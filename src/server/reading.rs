//! Tells streams of the connection that they are sent on, where it is theirs alone: on HTTP/1.
//!
//! A stream is not asked for its next event before much of what it gave is sent. For a client that reads slowly, that takes
//! long, and only its connection knows that it reads.

use axum::{
    extract::{ConnectInfo, Request},
    http::Version,
};
use futures::future::Either;

use super::{
    listener::Peer,
    next::{Answering, Next},
};
use crate::reader;

/// Answers a request whose reader is known.
pub(super) fn tell(request: Request, next: impl Next) -> impl Answering {
    let peer = request.extensions().get::<ConnectInfo<Peer>>().filter(|_| request.version() != Version::HTTP_2);
    match peer.map(|ConnectInfo(peer)| peer.reader()) {
        Some(reader) => Either::Left(reader::within(reader, next(request))),
        None => Either::Right(next(request)),
    }
}
