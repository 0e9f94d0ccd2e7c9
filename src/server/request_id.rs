//! `X-Request-Id` on responses: the client's own, or a fresh one where there is none, or none that a header should repeat.

use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};
use uuid::Uuid;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Bytes of the longest one that is repeated; endpoints that take it refuse a longer one.
const MOST_BYTES: usize = 512;

/// Adds the header.
pub(super) async fn add(request: Request, next: Next) -> Response {
    let own = request.headers().get(REQUEST_ID).filter(|own| own.len() <= MOST_BYTES).cloned();
    let mut response = next.run(request).await;
    let fresh = || HeaderValue::from_str(&Uuid::new_v4().simple().to_string()).expect("hex digits are a header value");
    response.headers_mut().append(REQUEST_ID, own.unwrap_or_else(fresh));
    response
}
