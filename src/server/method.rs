//! Methods of requests: clients may name any, so that what is kept of them, and written about them, is bounded.

use axum::{extract::Request, http::Method, response::IntoResponse};
use futures::future::{Either, ready};

use super::next::{Answering, Next};
use crate::wire::error::ApiError;

/// The methods that HTTP defines (RFC 9110, RFC 5789).
const DEFINED: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
/// What all others are called where requests are counted.
const OTHER: &str = "other";
/// The longest method that is answered as a method. The longest that is registered has 17 bytes.
const MOST_BYTES: usize = 32;

/// The name under which a method is counted.
pub(super) fn label(method: &Method) -> &'static str {
    DEFINED.into_iter().find(|defined| *defined == method.as_str()).unwrap_or(OTHER)
}

/// Refuses requests with longer methods than there are.
pub(super) fn bounded(request: Request, next: impl Next) -> impl Answering {
    if request.method().as_str().len() > MOST_BYTES {
        return Either::Left(ready(ApiError::method_too_long(MOST_BYTES).into_response()));
    }
    Either::Right(next(request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_that_http_does_not_define_have_one_name() {
        for method in DEFINED {
            assert_eq!(label(&method.parse().unwrap()), method);
        }
        for method in ["EVIL1", "EVIL2", "get", "QUERY", &"A".repeat(2_000)] {
            assert_eq!(label(&method.parse().unwrap()), OTHER);
        }
    }
}
