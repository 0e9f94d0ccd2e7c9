//! One file for each endpoint.

mod abort_requests;
mod cached_tokens;
mod chat_batch;
mod chat_completions;
mod chat_fields;
mod chat_sampling;
mod chat_templates;
mod chat_tools;
mod completions;
mod derender;
mod dialects;
mod generate;
mod health;
mod invocations;
mod message_turns;
mod messages;
mod models;
mod reasoning;
mod render;
mod responses;
mod server_load;
mod structured;
mod tokenize;
mod tokenizer_info;
mod tool_calls;
