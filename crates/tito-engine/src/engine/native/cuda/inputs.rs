//! What a step is told, in memory of the device that is kept from step to step: recorded launches find it there.

#[cfg(feature = "cuda")]
use std::collections::HashMap;

use super::buffer::{Allocations, Buffer};
#[cfg(feature = "cuda")]
use super::schedule::{ScheduleKey, ScheduleMemory};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct StepInputs {
    pub(super) allocations: Allocations,
    /// For each way of rotating, cosines and then sines.
    pub(super) angles: Vec<Buffer>,
    pub(super) broken: Buffer,
    pub(super) slots: Buffer,
    #[cfg(feature = "cuda")]
    pub(super) blocks: Buffer,
    #[cfg(feature = "cuda")]
    pub(super) schedules: HashMap<ScheduleKey, ScheduleMemory>,
}
