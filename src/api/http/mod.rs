//! The parts of HTTP that all endpoints share: the caller, bodies, the table of errors, streams, paths, the OpenAPI
//! document. This module knows no endpoint.

pub(super) mod caller;
pub(super) mod docs;
pub(super) mod document;
pub(super) mod error;
pub(super) mod json_body;
pub(super) mod slashes;
pub(super) mod sse;
mod token_continuity;
mod tool_notices;
