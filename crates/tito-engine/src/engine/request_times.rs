//! How long a sequence took.

use std::time::Duration;

/// How long one sequence was in each phase, by the engine's clock: how long its client takes to read does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestTimes {
    /// From its arrival to its first step.
    pub queued: Duration,
    /// From its first step to its first token.
    pub prefill: Duration,
    /// From its first token to its last one.
    pub decode: Duration,
}
