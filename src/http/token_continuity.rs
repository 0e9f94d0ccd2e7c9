//! The header that says what became of the ids of earlier turns.

use axum::{
    http::{HeaderName, HeaderValue},
    response::{IntoResponse, Response},
};

use crate::wire::answer::token_continuity::TokenContinuity;

const HEADER: HeaderName = HeaderName::from_static("x-token-continuity");

impl TokenContinuity {
    /// Adds a header with a short form of the verdict to the response.
    pub(crate) fn announce(&self, response: impl IntoResponse) -> Response {
        let mut response = response.into_response();
        if let Ok(value) = HeaderValue::from_str(&self.header()) {
            response.headers_mut().insert(HEADER, value);
        }
        response
    }
}
