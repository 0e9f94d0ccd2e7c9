//! `POST /v1/chat/completions`: its shapes, and the rules of its fields.

pub(crate) mod deltas;
pub(crate) mod rules;
pub(crate) mod types;
