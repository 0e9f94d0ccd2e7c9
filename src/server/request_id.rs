//! `X-Request-Id` on responses: the client's own, or a fresh one.

use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};
use uuid::Uuid;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Adds the header.
pub(super) async fn add(request: Request, next: Next) -> Response {
    let own = request.headers().get(REQUEST_ID).cloned();
    let mut response = next.run(request).await;
    let fresh = || HeaderValue::from_str(&Uuid::new_v4().simple().to_string()).expect("hex digits are a header value");
    response.headers_mut().append(REQUEST_ID, own.unwrap_or_else(fresh));
    response
}
