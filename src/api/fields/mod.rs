//! Fields of requests that several endpoints share: what becomes of them in a turn.

pub(super) mod conversation;
pub(super) mod delivery;
pub(super) mod progress;
pub(super) mod sampling;
pub(super) mod template_wishes;
pub(super) mod tools;
mod truncation;
