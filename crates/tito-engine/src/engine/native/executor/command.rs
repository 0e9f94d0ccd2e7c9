//! What the thread is told.

use super::controlled::Controlled;
use crate::engine::{SequenceRequest, backlog::Sender as Outputs, native::scheduler::SequenceId, seat_queue::Claimant};

/// What the thread is told.
pub(in crate::engine::native) enum Command {
    /// Generate a sequence.
    Start { entry: Entry, request: SequenceRequest, outputs: Outputs },
    /// Nobody reads the sequence's outputs any more.
    Abort(SequenceId),
    /// What made the sequence pause was read.
    Resume(SequenceId),
    /// The sequence's next position was prepared aside.
    Prepared(SequenceId),
    /// Do what a training loop asks.
    Control(Call),
    /// End the thread.
    Stop,
}

/// What a training loop has the thread do.
pub(in crate::engine::native) type Call = Box<dyn FnOnce(&mut dyn Controlled) + Send>;

/// What the engine knows of a sequence besides what was asked for.
pub(in crate::engine::native) struct Entry {
    pub(in crate::engine::native) id: SequenceId,
    /// Whose turn the sequence takes.
    pub(in crate::engine::native) claimant: Claimant,
}
