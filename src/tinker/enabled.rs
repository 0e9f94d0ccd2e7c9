//! Whether Tinker's clients are served.

use std::sync::Arc;

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
