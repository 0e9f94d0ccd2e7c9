//! Fields of requests that several endpoints share: what becomes of them in a turn.
//!
//! Owns how `wire`'s shared fields become sampling, tools, prompts and delivery, and how an answer is named. Refuses the
//! fields that only one endpoint has.

pub(crate) mod answer_id;
pub(crate) mod conversation;
pub(crate) mod delivery;
pub(crate) mod media_settings;
pub(crate) mod progress;
pub(crate) mod sampling;
pub(crate) mod template_wishes;
pub(crate) mod tools;
mod truncation;
