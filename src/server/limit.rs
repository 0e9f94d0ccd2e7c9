//! How much is read of bodies: a longer one than the longest is refused with 413, whether or not it says its length, and
//! one for which there is no room beside the others with 503.

use std::sync::{Arc, OnceLock};

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    response::{IntoResponse, Response},
};
use futures::StreamExt;

use super::next::Next;
use crate::{
    http::held_body::holding,
    turn::in_flight::{BytesInFlight, within},
    wire::error::ApiError,
};

/// What may be read.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    /// The most bytes of one body.
    pub(super) most: usize,
    /// The bytes of all bodies that are read or worked on at the same time.
    pub(super) in_flight: BytesInFlight,
}

impl Limits {
    /// Refuses a body that can never be read.
    fn check(&self, bytes: usize) -> Result<(), ApiError> {
        let together = self.in_flight.longest();
        if bytes > self.most {
            return Err(ApiError::body_too_large(self.most, "--max-request-bytes"));
        }
        if bytes > together {
            return Err(ApiError::body_too_large(together, "--max-bytes-in-flight"));
        }
        Ok(())
    }
}

/// Refuses what is too much.
pub(super) async fn apply(limits: Limits, request: Request, next: impl Next) -> Response {
    if request.body().is_end_stream() {
        return next(request).await;
    }
    let least = usize::try_from(request.body().size_hint().lower()).unwrap_or(usize::MAX);
    if let Err(error) = limits.check(least).and_then(|()| Ok(limits.in_flight.check(least)?)) {
        return error.into_response();
    }
    let reservation = Arc::new(limits.in_flight.reservation());
    let refusal = Arc::new(OnceLock::new());
    let (reserved, refused) = (Arc::clone(&reservation), Arc::clone(&refusal));
    let request = request.map(|body| {
        let mut seen = 0;
        Body::from_stream(body.into_data_stream().map(move |frame| {
            let frame = frame.map_err(std::io::Error::other)?;
            seen += frame.len();
            match limits.check(seen).and_then(|()| Ok(reserved.grow(frame.len())?)) {
                Ok(()) => Ok(frame),
                Err(error) => {
                    _ = refused.set(error);
                    Err(std::io::Error::other("the body is too long"))
                }
            }
        }))
    });
    let response = within(Arc::clone(&reservation), next(request)).await;
    match refusal.get() {
        Some(error) => error.clone().into_response(),
        // It is as long as the request, and keeps what that takes up until it is sent, if that is much.
        None if reservation.is_large() => response.map(|body| holding(body, reservation)),
        None => response,
    }
}
