//! Spans of notes, and how they are sent, to collectors that answer as a test has them.

mod collectors;
pub(crate) mod probe;
mod sending;
