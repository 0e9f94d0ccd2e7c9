//! `X-Request-Id` on responses: the client's own, or a fresh one where there is none, or none that a header should repeat.

use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue},
    response::Response,
};
use uuid::Uuid;

use super::next::Next;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Bytes of the longest one that is repeated; endpoints that take it refuse a longer one.
const MOST_BYTES: usize = 512;

/// Adds the header if it is `wanted`.
pub(super) async fn add(wanted: bool, request: Request, next: impl Next) -> Response {
    let own = request.headers().get(REQUEST_ID).filter(|own| wanted && own.len() <= MOST_BYTES).cloned();
    let mut response = next(request).await;
    if !wanted {
        return response;
    }
    let fresh = || HeaderValue::from_str(&Uuid::new_v4().simple().to_string()).expect("hex digits are a header value");
    response.headers_mut().append(REQUEST_ID, own.unwrap_or_else(fresh));
    response
}
