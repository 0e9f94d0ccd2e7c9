//! `X-Request-Id` on responses: the client's own, or a fresh one where there is none, or none that a header should repeat.

use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue},
    response::Response,
};
use futures::FutureExt;

use super::next::{Answering, Next};
use crate::fresh_uuid::fresh_uuid;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Bytes of the longest one that is repeated; endpoints that take it refuse a longer one.
const MOST_BYTES: usize = 512;

/// Adds the header if it is `wanted`.
pub(super) fn add(wanted: bool, request: Request, next: impl Next) -> impl Answering {
    let own = request.headers().get(REQUEST_ID).filter(|own| wanted && own.len() <= MOST_BYTES).cloned();
    next(request).map(move |response| if wanted { named(own, response) } else { response })
}

fn named(own: Option<HeaderValue>, mut response: Response) -> Response {
    let fresh = || HeaderValue::from_str(&fresh_uuid().simple().to_string()).expect("hex digits are a header value");
    response.headers_mut().append(REQUEST_ID, own.unwrap_or_else(fresh));
    response
}
