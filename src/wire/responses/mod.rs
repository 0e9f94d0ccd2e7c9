//! `/v1/responses`: its shapes, the events of its streams, and the rules of its fields.

pub(crate) mod events;
pub(crate) mod rules;
pub(crate) mod types;
