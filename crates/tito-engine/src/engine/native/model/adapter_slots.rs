//! Adapters that are put into slots of a model, and taken out.

use super::{adapters::AdapterSlot, memory::Model};
use crate::{engine::native::backend::Backend, weights::peft::PeftAdapter};

impl<B: Backend> Model<B> {
    /// Puts an adapter into a slot, in the place of whichever was there.
    ///
    /// The error is one line: the adapter is not the model's, or there is no memory for it. The slot is empty then.
    pub(crate) fn put_adapter(&mut self, slot: AdapterSlot, adapter: &PeftAdapter) -> Result<(), String> {
        let Self { adapter_sites, backend, workspace, .. } = self;
        let put = adapter_sites
            .additions(adapter)
            .and_then(|additions| workspace.adapters.put(backend, slot, &additions).map_err(|error| error.to_string()));
        if put.is_err() {
            workspace.adapters.clear(slot);
        }
        put
    }

    /// Gives the memory of a slot back.
    pub(crate) fn clear_adapter(&mut self, slot: AdapterSlot) {
        self.workspace.adapters.clear(slot);
    }
}
