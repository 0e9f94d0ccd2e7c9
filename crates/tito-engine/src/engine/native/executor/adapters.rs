//! Adapters that move into their slots, and out of them.

use super::state::Executor;
use crate::engine::{
    EngineError,
    native::{backend::Backend, scheduler::Plan},
};

impl<B: Backend> Executor<B> {
    /// Puts the adapters of a plan into their slots. Sequences whose adapter finds no memory end with an error, and the
    /// others go on without them.
    pub(super) fn put_adapters(&mut self, plan: &mut Plan) {
        for (slot, adapter) in std::mem::take(&mut plan.adapters) {
            let Err(error) = self.model.put_adapter(slot, adapter.weights()) else { continue };
            self.scheduler.vacate(slot);
            let reason = EngineError::Failed(format!("the adapter {} cannot be applied: {error}", adapter.label()));
            for id in self.scheduler.without_adapter(plan, slot) {
                if let Some(active) = self.active.get(&id) {
                    let _ = active.outputs.send(Err(reason.clone()));
                }
                self.end(id);
            }
        }
    }

    /// Gives the memory of adapters back that nobody asks for and nobody runs with.
    pub(super) fn empty_slots(&mut self) {
        for slot in self.scheduler.emptied_slots() {
            self.model.clear_adapter(slot);
        }
    }
}
