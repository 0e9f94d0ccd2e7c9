//! Whether Tinker's clients are served.

use std::sync::Arc;

use crate::{
    state::Api,
    tinker_sessions::Tinker,
    wire::error::{ApiError, ErrorKind},
};

/// The sessions, where Tinker's clients are served.
pub(super) fn sessions_of(api: &Api) -> Result<&Arc<Tinker>, ApiError> {
    api.tinker.as_ref().ok_or_else(|| {
        ApiError::new(ErrorKind::NotFound, None, "Tinker's clients are served with the flag --tinker-api")
    })
}
