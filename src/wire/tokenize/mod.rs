//! `POST /tokenize` and `/detokenize`: their shapes, and the rules of their fields.

pub(crate) mod rules;
pub(crate) mod types;
