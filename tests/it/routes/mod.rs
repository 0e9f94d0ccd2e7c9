//! One file for each endpoint.

mod cached_tokens;
mod chat_completions;
mod chat_fields;
mod chat_sampling;
mod chat_templates;
mod chat_tools;
mod completions;
mod health;
mod models;
mod tokenize;
mod tool_calls;
