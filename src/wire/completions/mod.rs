//! `POST /v1/completions`: its shapes, and the rules of its fields.

pub(crate) mod prompt_input;
pub(crate) mod rules;
pub(crate) mod types;
