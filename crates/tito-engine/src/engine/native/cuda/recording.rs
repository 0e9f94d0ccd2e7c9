//! How a backend records the layers of a step, and launches what was recorded; `graphs` knows which steps are the same.

use super::{
    device::DeviceBackend,
    failure::done,
    graphs::{Met, StepGraphs, StepKey},
    kernels,
    shared::StepShared,
};

impl DeviceBackend {
    /// Computes the layers of a step, or launches what a step of its shape launched.
    pub(super) fn compute_or_launch(
        &mut self,
        shared: &mut StepShared,
        compute: &mut dyn FnMut(&mut Self, &mut StepShared),
    ) {
        match done(self.graphs.meet(shared, &self.allocations)) {
            Met::Off => compute(self, shared),
            Met::New => {
                compute(self, shared);
                done(self.graphs.learn(shared, &self.allocations));
            }
            Met::Again(key) => self.record(key, shared, compute),
            Met::Recorded(graph) => done(graph.launch()),
        }
    }

    /// Records the layers of a step, and launches them; computes them as ever where they cannot be recorded.
    fn record(&mut self, key: StepKey, shared: &mut StepShared, compute: &mut dyn FnMut(&mut Self, &mut StepShared)) {
        let (device, allocations) = (self.device.clone(), self.allocations.clone());
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
