//! Fields of requests that several endpoints share: their shapes, how vLLM declares them, and what they may hold.

pub(crate) mod cache_salt;
pub(crate) mod chat_messages;
pub(crate) mod of_sglang;
pub(crate) mod repetition;
pub(crate) mod sampling;
pub(crate) mod stream_options;
pub(crate) mod structured;
pub(crate) mod thinking_budget;
pub(crate) mod tools;
pub(crate) mod unserved;
pub(crate) mod untyped;
