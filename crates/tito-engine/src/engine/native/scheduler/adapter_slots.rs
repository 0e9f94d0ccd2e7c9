//! Which adapters are in the slots of the device.
//!
//! A sequence runs only while its adapter has a slot. Where all slots are taken by adapters of others, it claims the one
//! that was used longest ago: nobody else begins to use that one any more, and it changes hands once those that run with it
//! have ended. So nobody waits for ever, however many adapters there are.

use std::{collections::BTreeSet, sync::Arc};

use super::sequence::Sequence;
use crate::engine::{Adapter, AdapterId, native::model::AdapterSlot};

/// The slots, and who is in them.
#[derive(Debug)]
pub(super) struct AdapterSlots {
    pub(super) slots: Vec<Option<Resident>>,
    /// Adapters that nobody asks for any more, and that sequences may still run with.
    pub(super) forgotten: BTreeSet<AdapterId>,
}

/// An adapter in a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resident {
    id: AdapterId,
    /// The step in which a sequence began to run with it last.
    used: u64,
}

/// Where a sequence's adapter can be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seat {
    /// It needs none, or is there.
    There(Option<AdapterSlot>),
    /// It has to be put there.
    Free(AdapterSlot),
    /// Nowhere, for now.
    Nowhere,
}

impl AdapterSlots {
    pub(super) fn new(slots: usize) -> Self {
        Self { slots: vec![None; slots], forgotten: BTreeSet::new() }
    }

    pub(super) fn slot_of(&self, id: AdapterId) -> Option<AdapterSlot> {
        self.slots.iter().position(|slot| slot.is_some_and(|resident| resident.id == id))
    }

    /// Whether the sequence's adapter is still where it was when the sequence ran last.
    pub(super) fn has(&self, sequence: &Sequence) -> bool {
        let Some(adapter) = &sequence.adapter else { return true };
        sequence.adapter_slot.is_some() && self.slot_of(adapter.id()) == sequence.adapter_slot
    }

    pub(super) fn seat(
        &self,
        id: AdapterId,
        in_use: &BTreeSet<AdapterSlot>,
        claimed: &mut BTreeSet<AdapterSlot>,
    ) -> Seat {
        if let Some(slot) = self.slot_of(id) {
            return if claimed.contains(&slot) { Seat::Nowhere } else { Seat::There(Some(slot)) };
        }
        let used = |slot: &AdapterSlot| (in_use.contains(slot), self.slots[*slot].map_or(0, |resident| resident.used));
        let unclaimed = (0..self.slots.len()).filter(|slot| !claimed.contains(slot));
        match unclaimed.min_by_key(used) {
            Some(slot) if !in_use.contains(&slot) => Seat::Free(slot),
            Some(slot) => {
                claimed.insert(slot);
                Seat::Nowhere
            }
            None => Seat::Nowhere,
        }
    }

    /// Takes note that a sequence begins to run with the adapter in this slot.
    pub(super) fn take(&mut self, slot: AdapterSlot, adapter: &Arc<Adapter>, step: u64) {
        self.slots[slot] = Some(Resident { id: adapter.id(), used: step });
    }
}
