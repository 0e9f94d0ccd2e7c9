//! What happens to one request, noted where it happens: its prompt, what it asks for, each of its sequences, its answer.
//!
//! Owns the notes, and when they are complete: once nothing works for the request any more, whatever ended it, they are given
//! away, once. Refuses formats and networks, and all texts: no part of a message is ever noted.
//!
//! Whoever works for a request finds its notes by the task that it runs in. Without any, nothing is measured.

mod current;
mod record;
mod trace;

pub(crate) use current::{current, entered, generates, prompting, within};
#[cfg(test)]
pub(crate) use record::MOST_NOTED;
pub(crate) use record::{Answer, Asked, PromptVerdict, RequestRecord, SequenceRecord};
pub(crate) use trace::RequestTrace;
