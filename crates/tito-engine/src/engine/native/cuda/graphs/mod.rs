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

use candle_core::{DType, Device, Result};

use super::{
    buffer::Allocations,
    device::DeviceBackend,
    failure::done,
    kernels::{self, Graph},
    schedule::ScheduleKey,
    shared::StepShared,
};

/// The most rows of a step that is recorded. A device takes longer for more of them than a processor takes to launch them.
const MOST_ROWS: usize = 128;
/// The most steps that are remembered: each takes memory of the driver's, and of the device's.
const MOST_STEPS: usize = 96;

/// What decides which kernels a step launches, and with what arguments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct StepKey {
    rows: usize,
    /// For each schedule of attention how many items and merges it has.
    lists: Vec<[usize; 2]>,
}

/// A step that was computed before.
struct Known {
    /// `None` until it is computed again.
    graph: Option<Graph>,
    /// When it was last computed, in steps.
    used: u64,
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

    /// Forgets everything if memory was allocated anew since.
    fn forget_moved(&mut self, allocations: &Allocations) {
        let now = allocations.so_far();
        if self.allocated != now {
            self.steps.clear();
            self.allocated = now;
        }
    }

    /// Which step this is, whose schedules are on the device then. `None` if it is not one to record: it has a long prompt, or the
    /// schedules of its layers are not known yet.
    fn key(&self, shared: &StepShared) -> Result<Option<StepKey>> {
        let rows = shared.rows();
        if self.schedules.is_empty() || rows > MOST_ROWS {
            return Ok(None);
        }
        let mut lists = Vec::with_capacity(self.schedules.len());
        for key in &self.schedules {
            let schedule = shared.schedule(*key)?;
            if schedule.wide.is_some() {
                return Ok(None);
            }
            let lens = [&schedule.narrow, &schedule.merges].map(|list| list.as_ref().map_or(Ok(0), |list| list.dim(0)));
            let [items, merges] = lens;
            lists.push([items?, merges?]);
        }
        // What else layers read, so that nothing is sent while they are recorded.
        shared.slots()?;
        shared.blocks()?;
        Ok(Some(StepKey { rows, lists }))
    }

    /// Remembers a step, in the place of the one that was computed longest ago.
    fn remember(&mut self, key: StepKey, graph: Option<Graph>) {
        if self.steps.len() >= MOST_STEPS && !self.steps.contains_key(&key) {
            let oldest = self.steps.iter().min_by_key(|(_, known)| known.used).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| self.steps.remove(&oldest));
        }
        self.steps.insert(key, Known { graph, used: self.clock });
    }
}

impl DeviceBackend {
    /// Whether steps may be recorded. Tiles of one shape and numbers of codes take memory in the midst of a step.
    pub(super) fn can_record(&self) -> bool {
        self.device.is_cuda() && self.dtype == DType::BF16 && self.tile.is_none() && !self.keeps_codes
    }

    /// Computes the layers of a step, or launches what a step of its shape launched.
    pub(super) fn compute_or_launch(
        &mut self,
        shared: &mut StepShared,
        compute: &mut dyn FnMut(&mut Self, &mut StepShared),
    ) {
        if !self.graphs.is_on {
            return compute(self, shared);
        }
        self.graphs.clock += 1;
        let key = done(self.graphs.key(shared));
        self.graphs.forget_moved(&self.allocations);
        let clock = self.graphs.clock;
        match key.as_ref().and_then(|key| self.graphs.steps.get_mut(key)) {
            None => {
                compute(self, shared);
                self.graphs.learn(shared);
                self.graphs.forget_moved(&self.allocations);
                if let Some(key) = done(self.graphs.key(shared)) {
                    self.graphs.remember(key, None);
                }
            }
            Some(Known { graph: Some(graph), used }) => {
                *used = clock;
                done(graph.launch());
                #[cfg(test)]
                (self.graphs.launched += 1);
            }
            Some(Known { graph: None, .. }) => {
                let key = key.expect("a known step has a key");
                self.record(key, shared, compute);
            }
        }
    }

    /// Records the layers of a step, and launches them; computes them as ever where they cannot be recorded.
    fn record(&mut self, key: StepKey, shared: &mut StepShared, compute: &mut dyn FnMut(&mut Self, &mut StepShared)) {
        let device: Device = self.device.clone();
        let allocations = self.allocations.clone();
        let recorded = kernels::record(&device, &allocations, || compute(self, shared));
        let reason = match recorded {
            Ok(Some(graph)) => {
                done(graph.launch());
                return self.graphs.remember(key, Some(graph));
            }
            Ok(None) => "they launch more than kernels".to_owned(),
            Err(error) => error.to_string(),
        };
        tracing::warn!("--cuda-graphs has no effect: steps cannot be recorded, as {reason}");
        self.graphs = StepGraphs::default();
        compute(self, shared);
    }
}

impl StepGraphs {
    /// Remembers which schedules the layers of a step asked for.
    fn learn(&mut self, shared: &StepShared) {
        if !shared.by_kernels.get() {
            tracing::warn!("--cuda-graphs has no effect: heads of this size have no kernel of attention of tito's own");
            *self = Self::default();
        } else if self.schedules.is_empty() {
            self.schedules = shared.asked();
        }
    }
}
