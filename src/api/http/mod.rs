//! The parts of speaking HTTP that all endpoints share: callers, errors and their words, streams, paths, the document.
//! This module knows no endpoint.

pub(super) mod caller;
pub(super) mod docs;
pub(super) mod document;
pub(super) mod error;
mod sanitize;
pub(super) mod slashes;
pub(super) mod sse;
pub(super) mod validation_error;
pub(super) mod wording;
