//! Recurrent states of one layer: where they are kept, and what tokens make of them.
//!
//! A sequence is computed token by token, and every number of a state by one thread: so its bits do not depend on how a
//! prompt was cut, or on other sequences.

mod convolution;
mod norm;
mod rule;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use self::{
    convolution::{Taps, convolve},
    norm::{gated_norm, multiply_columns, open},
    rule::recur,
};
use super::pages::Pages;
use crate::engine::native::{
    backend::{NoRoom, Span},
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

    /// Refuses spans of which two write to one slot, since states are written by several threads at a time.
    fn check(&self, spans: &[Span]) {
        let mut slots: Vec<SlotId> = spans.iter().flat_map(slots_of).collect();
        slots.sort_unstable();
        assert!(slots.is_sorted_by(|one, next| one < next), "no two spans write to one slot, and none twice");
        let len = self.shape.numbers();
        assert!(
            slots.last().is_none_or(|last| (*last as usize + 1) * len <= self.numbers.len()),
            "there is no such slot"
        );
    }
}

/// The slots that a span writes to.
fn slots_of(span: &Span) -> impl Iterator<Item = SlotId> {
    std::iter::once(span.slot).chain(span.snapshots.iter().map(|(_, slot)| *slot))
}

/// For each span whether its numbers are finite.
struct Finite<'a>(&'a mut [bool], Vec<AtomicBool>);

impl<'a> Finite<'a> {
    fn new(finite: &'a mut [bool]) -> Self {
        let flags = finite.iter().map(|finite| AtomicBool::new(*finite)).collect();
        Self(finite, flags)
    }

    fn look_at(&self, span: usize, numbers: &[f32]) {
        if !numbers.iter().all(|number| number.is_finite()) {
            self.1[span].store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for Finite<'_> {
    fn drop(&mut self) {
        for (finite, flag) in self.0.iter_mut().zip(&self.1) {
            *finite = flag.load(Ordering::Relaxed);
        }
    }
}
