//! Fields of requests that several endpoints share: what becomes of them in a turn.

pub(super) mod conversation;
pub(super) mod delivery;
pub(super) mod sampling;
pub(super) mod stream_interval;
pub(super) mod tools;
mod truncation;
