//! `POST /v1/messages` and `/v1/messages/count_tokens`: their shapes, and the rules of their fields.

pub(crate) mod answer;
pub(crate) mod fold;
pub(crate) mod rules;
pub(crate) mod tool_input;
pub(crate) mod types;
