//! Steps whose launches are recorded: where a step launches what another one did, a single call has the device do it.
//!
//! A small model is done with a kernel sooner than the next one is launched. Steps of the same rows launch the same kernels with
//! the same arguments, as what differs between them is written to the same memory before. So the second step of a shape is
//! recorded, and those after it launch what was recorded.
//!
//! Owns which steps are the same, and when what was recorded is void. A record names weights, caches and buffers by their
//! addresses. All records go as soon as one of these is allocated anew.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use candle_core::Result;

use super::{buffer::Allocations, kernels::Graph, schedule::ScheduleKey, shared::StepShared};

/// The most rows of a step that is recorded. A device takes longer for more of them than a processor takes to launch them.
const MOST_ROWS: usize = 128;
/// The most steps that are remembered: each takes memory of the driver's, and of the device's.
const MOST_STEPS: usize = 96;

/// What decides which kernels a step launches, and with what arguments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct StepKey {
    rows: usize,
    /// For each schedule of attention how it is launched.
    schedules: Vec<Launched>,
}

/// What decides how a schedule of attention is launched: how many items it has, and whether heads are made ready by the same
/// kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Launched {
    items: usize,
    prepares: bool,
}

/// A step that was computed before.
struct Known {
    /// `None` until it is computed again.
    graph: Option<Graph>,
    /// When it was last computed, in steps.
    used: u64,
}

/// What is known of a step that is to be computed.
pub(super) enum Met<'a> {
    /// Steps are not recorded.
    Off,
    /// It comes for the first time.
    New,
    /// It came before, and was not recorded yet.
    Again(StepKey),
    /// It was recorded.
    Recorded(&'a Graph),
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct StepGraphs {
    /// Whether steps are recorded.
    is_on: bool,
    /// The schedules that the layers of the model ask for; empty until a step was computed.
    schedules: Vec<ScheduleKey>,
    steps: HashMap<StepKey, Known>,
    /// How much had been allocated when they were computed.
    allocated: u64,
    /// Steps so far.
    clock: u64,
    #[cfg(test)]
    launched: u64,
}

impl StepGraphs {
    /// Records steps.
    pub(super) fn on() -> Self {
        Self { is_on: true, ..Self::default() }
    }

    /// What is known of a step.
    pub(super) fn meet(&mut self, shared: &StepShared, allocations: &Allocations) -> Result<Met<'_>> {
        if !self.is_on {
            return Ok(Met::Off);
        }
        self.clock += 1;
        // What the step is told may take new memory.
        let key = self.key(shared)?;
        self.forget_moved(allocations);
        let Some(key) = key else { return Ok(Met::New) };
        match self.steps.get_mut(&key) {
            None => Ok(Met::New),
            Some(Known { graph: None, .. }) => Ok(Met::Again(key)),
            Some(Known { graph: Some(graph), used }) => {
                *used = self.clock;
                #[cfg(test)]
                (self.launched += 1);
                Ok(Met::Recorded(graph))
            }
        }
    }

    /// Remembers a step that was computed for the first time, and which schedules its layers asked for.
    pub(super) fn learn(&mut self, shared: &StepShared, allocations: &Allocations) -> Result<()> {
        if !shared.by_kernels.get() {
            tracing::warn!("--cuda-graphs has no effect: heads of this size have no kernel of attention of tito's own");
            *self = Self::default();
            return Ok(());
        }
        if self.schedules.is_empty() {
            self.schedules = shared.asked();
        }
        // It may have taken new memory.
        self.forget_moved(allocations);
        if let Some(key) = self.key(shared)? {
            self.remember(key, None);
        }
        Ok(())
    }

    /// Forgets everything if memory was allocated anew since.
    fn forget_moved(&mut self, allocations: &Allocations) {
        let now = allocations.so_far();
        if self.allocated != now {
            self.steps.clear();
            self.allocated = now;
        }
    }

    /// Which step this is, whose schedules are on the device then. `None` if it is not one to record: it has a long prompt, or an image
    /// that is seen both ways, or the schedules of its layers are not known yet.
    fn key(&self, shared: &StepShared) -> Result<Option<StepKey>> {
        let rows = shared.rows();
        if self.schedules.is_empty() || rows > MOST_ROWS || !shared.whole_images.is_empty() {
            return Ok(None);
        }
        let mut schedules = Vec::with_capacity(self.schedules.len());
        for key in &self.schedules {
            let schedule = shared.schedule(*key)?;
            if schedule.wide.is_some() {
                return Ok(None);
            }
            let items = schedule.narrow.as_ref().map_or(Ok(0), |list| list.dim(0))?;
            schedules.push(Launched { items, prepares: schedule.whole_spans });
        }
        // What else layers read, so that nothing is sent while they are recorded.
        shared.slots()?;
        shared.blocks()?;
        Ok(Some(StepKey { rows, schedules }))
    }

    /// Remembers a step, in the place of the one that was computed longest ago.
    pub(super) fn remember(&mut self, key: StepKey, graph: Option<Graph>) {
        if self.steps.len() >= MOST_STEPS && !self.steps.contains_key(&key) {
            let oldest = self.steps.iter().min_by_key(|(_, known)| known.used).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| self.steps.remove(&oldest));
        }
        self.steps.insert(key, Known { graph, used: self.clock });
    }
}
