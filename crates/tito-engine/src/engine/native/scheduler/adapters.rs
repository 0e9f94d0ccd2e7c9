//! Adapters of sequences that begin to run, and adapters that are forgotten.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Scheduler, SequenceId,
    adapter_slots::Seat,
    plan::{Plan, Work},
    sequence::Sequence,
};
use crate::engine::{Adapter, AdapterId, AdapterLoad, native::model::AdapterSlot};

impl Scheduler {
    /// Looks for a slot for an adapter, of which those in `claimed` are for others. Where none is to be had, claims one.
    pub(super) fn seat(&self, adapter: Option<&Arc<Adapter>>, claimed: &mut BTreeSet<AdapterSlot>) -> Seat {
        match adapter {
            None => Seat::There(None),
            Some(adapter) => self.adapters.seat(adapter.id(), &self.adapters_in_use(), claimed),
        }
    }

    /// The slots whose adapters sequences run with.
    fn adapters_in_use(&self) -> BTreeSet<AdapterSlot> {
        self.running.iter().filter_map(|sequence| sequence.adapter_slot).collect()
    }

    /// Takes note that a sequence has its adapter in this slot, which is to be put there if it is not.
    pub(super) fn sit(&mut self, seat: &Seat, sequence: &mut Sequence, plan: &mut Plan) {
        let (Seat::There(Some(slot)) | Seat::Free(slot)) = *seat else { return };
        let Some(adapter) = &sequence.adapter else { return };
        self.adapters.take(slot, adapter, self.step);
        if matches!(seat, Seat::Free(_)) {
            plan.adapters.push((slot, Arc::clone(adapter)));
        }
        sequence.adapter_slot = Some(slot);
    }

    /// Whether sequences may have adapters.
    pub(crate) fn serves_adapters(&self) -> bool {
        !self.adapters.slots.is_empty()
    }

    /// The adapters of the sequences that run, and those of others that wait.
    pub(crate) fn adapter_load(&self) -> AdapterLoad {
        let name = |sequence: &Sequence| sequence.adapter.as_ref().map(|adapter| Arc::clone(adapter.name()));
        let running: BTreeSet<Arc<str>> = self.running.iter().filter_map(name).collect();
        let waiting: BTreeSet<Arc<str>> =
            self.waiting.iter().filter_map(name).filter(|name| !running.contains(name)).collect();
        AdapterLoad {
            running: running.into_iter().collect(),
            waiting: waiting.into_iter().collect(),
            deferred: self.deferred(),
        }
    }

    /// How many sequences only the slots of adapters hold back. Where no seat is free, all wait for seats.
    fn deferred(&self) -> usize {
        if self.running.len() >= self.bounds.max_num_seqs {
            return 0;
        }
        let (in_use, mut claimed) = (self.adapters_in_use(), BTreeSet::new());
        let adapters = self.waiting.iter().filter_map(|sequence| sequence.adapter.as_ref());
        let seats = adapters.map(|adapter| self.adapters.seat(adapter.id(), &in_use, &mut claimed));
        seats.filter(|seat| *seat == Seat::Nowhere).count()
    }

    /// Takes note that a slot is empty after all.
    pub(crate) fn vacate(&mut self, slot: AdapterSlot) {
        self.adapters.slots[slot] = None;
    }

    /// Takes note that nobody asks for an adapter any more.
    pub(crate) fn forget_adapter(&mut self, id: AdapterId) {
        self.cache.tell_hidden();
        if let Some(told) = &mut self.cache.told {
            told.forget_adapter(id);
        }
        if self.adapters.slot_of(id).is_some() || self.is_awaited(id) {
            self.adapters.forgotten.insert(id);
        }
    }

    /// Whether a sequence that does not run has this adapter: it may yet put it into a slot.
    fn is_awaited(&self, id: AdapterId) -> bool {
        let mut idle = self.waiting.iter().chain(&self.paused);
        idle.any(|sequence| sequence.adapter.as_ref().is_some_and(|adapter| adapter.id() == id))
    }

    /// Empties the slots of adapters that were forgotten, as far as nobody runs with them, and names the slots.
    pub(crate) fn emptied_slots(&mut self) -> Vec<AdapterSlot> {
        if self.adapters.forgotten.is_empty() {
            return Vec::new();
        }
        let in_use = self.adapters_in_use();
        let mut emptied = Vec::new();
        for id in self.adapters.forgotten.clone() {
            match self.adapters.slot_of(id) {
                Some(slot) if in_use.contains(&slot) => {}
                Some(slot) => {
                    // Whoever still waits puts it into a slot again.
                    if !self.is_awaited(id) {
                        self.adapters.forgotten.remove(&id);
                    }
                    self.vacate(slot);
                    emptied.push(slot);
                }
                None if self.is_awaited(id) => {}
                None => _ = self.adapters.forgotten.remove(&id),
            }
        }
        emptied
    }

    /// Takes the sequences of an adapter, which was to be put into its slot in this step, out of a plan that is not computed
    /// yet; the sequences themselves stay. Some may have nothing to compute in it.
    pub(crate) fn without_adapter(&mut self, plan: &mut Plan, slot: AdapterSlot) -> Vec<SequenceId> {
        let (out, rest) = std::mem::take(&mut plan.work).into_iter().partition(|work| work.adapter == Some(slot));
        plan.work = rest;
        let out: Vec<Work> = out;
        for work in &out {
            self.cache.release_snapshots(work);
        }
        let seated = self.running.iter().filter(|sequence| sequence.adapter_slot == Some(slot));
        seated.map(|sequence| sequence.id).collect()
    }
}
