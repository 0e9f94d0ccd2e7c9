//! Recurrent states of one layer, in slots.

use super::pages::Pages;
use crate::engine::native::{
    backend::NoRoom,
    recurrence::{RecurrentShape, SlotId},
};

/// The states of one layer. Memory that was never written to is not taken from the system.
#[derive(Debug)]
pub(crate) struct RecurrentStore {
    shape: RecurrentShape,
    numbers: Pages<f32>,
}

impl RecurrentStore {
    /// Room for `slots` states.
    pub(crate) fn new(shape: RecurrentShape, slots: usize) -> Result<Self, NoRoom> {
        let numbers = slots.checked_mul(shape.numbers()).ok_or(NoRoom)?;
        Ok(Self { shape, numbers: Pages::zeros(numbers)? })
    }

    /// Copies a state.
    pub(crate) fn copy(&mut self, from: SlotId, to: SlotId) {
        let len = self.shape.numbers();
        let (from, to) = (from as usize * len, to as usize * len);
        self.numbers.copy_within(from..from + len, to);
    }
}
