//! Whether Tinker's clients are served.

use std::sync::Arc;

use axum::{extract::FromRequestParts, http::request::Parts};

use crate::{
    retry::Cause,
    state::Api,
    tinker_sessions::Tinker,
    wire::error::{ApiError, ErrorKind},
};

/// The sessions, where Tinker's clients are served.
pub(super) fn sessions_of(api: &Api) -> Result<&Arc<Tinker>, ApiError> {
    api.tinker.as_ref().ok_or_else(|| {
        let message = "Tinker's clients are served with the flag --tinker-api";
        ApiError::new(ErrorKind::NotFound, None, message).caused_by(Cause::Request)
    })
}

/// Proof that Tinker's clients are served. Asked for in front of a body, so that a server without the flag says so instead of
/// judging the body.
pub(super) struct Enabled;

impl FromRequestParts<Arc<Api>> for Enabled {
    type Rejection = ApiError;

    async fn from_request_parts(_: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        sessions_of(api).map(|_| Self)
    }
}
