//! The parts of HTTP that all endpoints share: the caller, bodies, the table of errors, streams, paths, the OpenAPI
//! document.
//!
//! Owns what a status is, and how an answer is sent. Knows no endpoint, and not what endpoints work with.

pub(crate) mod caller;
pub(crate) mod docs;
pub(crate) mod document;
pub(crate) mod error;
pub(crate) mod held_body;
pub(crate) mod hidden_parts;
pub(crate) mod json_answer;
pub(crate) mod json_body;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod slashes;
pub(crate) mod sse;
mod token_continuity;
mod tool_notices;
