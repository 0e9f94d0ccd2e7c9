//! Fields of requests that several endpoints share: how they are declared, what they may hold, and what becomes of them.

pub(super) mod before;
pub(super) mod cache_salt;
pub(super) mod chat_messages;
pub(super) mod conversation;
mod repetition;
pub(super) mod sampling;
pub(super) mod stream_interval;
pub(super) mod stream_options;
pub(super) mod structured;
pub(super) mod thinking_budget;
pub(super) mod tools;
mod truncation;
