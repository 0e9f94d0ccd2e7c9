//! `POST /v1/messages` and `/v1/messages/count_tokens`: their shapes, and the rules of their fields.

pub(crate) mod answer;
pub(crate) mod rules;
pub(crate) mod types;
