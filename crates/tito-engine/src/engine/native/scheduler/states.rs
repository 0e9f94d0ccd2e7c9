//! Recurrent states: who goes on from which, and who leaves copies of its own.
//!
//! Every sequence that runs has a slot with the state after all of its tokens that are computed. There is no going back in
//! a state, so others go on from *copies*, each of the state after some whole blocks, which is known by their hash. A copy
//! is of use only with these blocks, and blocks only as far as there is a copy. Copies are left
//!
//! - at the last border of blocks in a prompt from which the same prompt could go on: for its other samples;
//! - where a sequence parts from what is there already: others will part there too;
//! - after the prompt at every border, each in place of the one before: for the next turn of a conversation, and for the
//!   sequence itself if it has to make room.
//!
//! A copy takes a slot that nobody holds, or is not left. Copies are kept like blocks until slots are needed. While
//! sequences wait, those that run leave copies of their outputs in free slots only: others would be copies that the waiting
//! ones may go on from.

use std::collections::HashSet;

use super::{Plan, Scheduler, Work, sequence::Sequence, told};
use crate::engine::native::{
    backend::BLOCK_TOKENS,
    kv_cache::{BlockHash, Places, Told},
    recurrence::SlotId,
};

/// All that is known of the past of sequences.
#[derive(Debug)]
pub(super) struct Cache {
    /// Keys and values.
    pub(super) blocks: Places,
    /// Recurrent states; none in a model without them.
    pub(super) slots: Places,
    /// Who is told which blocks are found, where somebody is.
    pub(super) told: Option<Told>,
}

impl Cache {
    pub(super) fn new(blocks: usize, slots: usize) -> Self {
        Self { blocks: Places::new(blocks), slots: Places::new(slots), told: None }
    }

    /// Whether there are recurrent states.
    pub(super) fn has_states(&self) -> bool {
        self.slots.len() > 0
    }

    /// The share of places that sequences hold, of the kind of which they hold more.
    pub(super) fn usage(&self) -> f64 {
        share(&self.blocks).max(share(&self.slots))
    }

    /// Whether no sequence holds anything.
    pub(super) fn is_unused(&self) -> bool {
        self.blocks.held() == 0 && self.slots.held() == 0
    }

    /// Forgets the content of all places.
    pub(super) fn forget(&mut self) {
        self.blocks.forget();
        self.slots.forget();
        self.blocks.hidden();
        if let Some(told) = &mut self.told {
            told.cleared();
        }
    }

    /// The deepest of some borders whose state is there: how many blocks are before it, and the slot. The first hash is
    /// that of no block, where every state is zero.
    pub(super) fn deepest_state(&self, hashes: &[BlockHash]) -> (usize, Option<SlotId>) {
        let mut deepest_first = hashes.iter().enumerate().skip(1).rev();
        let found = deepest_first.find_map(|(blocks, hash)| Some((blocks, Some(self.slots.find(hash)?))));
        found.unwrap_or((0, None))
    }

    /// Whether a sequence that begins to run can have a slot, or needs none.
    pub(super) fn has_slot(&self) -> bool {
        !self.has_states() || self.slots.available() > 0
    }

    /// Takes a slot for a sequence that goes on from a copy of a state, or from the beginning. The copy is to be copied
    /// there, and is taken itself where no other slot can be had.
    pub(super) fn take_slot(&mut self, copy: Option<SlotId>, restores: &mut Vec<(SlotId, SlotId)>) -> Option<SlotId> {
        let Some(copy) = copy else { return self.slots.take() };
        self.slots.hold(copy);
        let Some(slot) = self.slots.take() else {
            self.slots.hide(copy);
            return Some(copy);
        };
        restores.push((copy, slot));
        self.slots.release(copy);
        Some(slot)
    }

    /// Makes known what a sequence computed: its blocks from number `first` on, and copies of its state.
    pub(super) fn publish(&mut self, sequence: &mut Sequence, first: usize, work: &Work) {
        self.publish_blocks(sequence, first);
        for (tokens, slot) in &work.snapshots {
            self.slots.publish(*slot, sequence.hashes[tokens / BLOCK_TOKENS]);
        }
    }

    /// Makes known the whole blocks that a sequence computed, from number `first` on.
    pub(super) fn publish_blocks(&mut self, sequence: &mut Sequence, first: usize) {
        self.tell_hidden();
        for block in first..sequence.computed / BLOCK_TOKENS {
            let is_new = self.blocks.publish(sequence.blocks[block], sequence.hashes[block + 1]);
            if let Some(told) = self.told.as_mut().filter(|_| is_new) {
                told.stored(told::new_block(sequence, block));
            }
        }
    }

    /// Has somebody told which blocks are found, from now on.
    pub(super) fn tell(&mut self, told: Told) {
        self.blocks = Places::new(self.blocks.len()).telling();
        self.told = Some(told);
    }

    /// Tells which blocks are found no more.
    pub(super) fn tell_hidden(&mut self) {
        if let Some(told) = &mut self.told {
            self.blocks.hidden().iter().for_each(|hash| told.removed(hash));
        }
    }

    /// Lets go of the copies of a state that were left.
    pub(super) fn release_snapshots(&mut self, work: &Work) {
        for (_, slot) in &work.snapshots {
            self.slots.release(*slot);
        }
    }

    /// Lets go of all that a sequence holds: of its last block first, so that the beginnings of sequences are kept longest.
    pub(super) fn release(&mut self, sequence: &mut Sequence) {
        for block in sequence.blocks.drain(..).rev() {
            self.blocks.release(block);
        }
        if let Some(slot) = sequence.slot.take() {
            self.slots.release(slot);
        }
        sequence.computed = 0;
        if std::mem::take(&mut sequence.reuses_older_keys) {
            // They were those of the weights that it began with.
            sequence.hashes.clear();
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn share(places: &Places) -> f64 {
    places.held() as f64 / places.len().max(1) as f64
}

impl Scheduler {
    /// Decides which sequences of a step leave copies of their states, now that nobody makes room any more: first those
    /// that others may wait for.
    pub(super) fn leave_states(&mut self, plan: &mut Plan) {
        if !self.cache.has_states() {
            return;
        }
        let is_awaited = self.waiting.waiting() > 0;
        let mut left = HashSet::new();
        for decoded in [false, true] {
            for work in &mut plan.work {
                let Some(sequence) = self.running.get_mut(work.id) else { continue };
                if sequence.reuses_older_keys {
                    continue;
                }
                sequence.hash(self.weight_version);
                let end = work.first + work.token_ids.len();
                let borders = if decoded { [decoded_border(sequence, end), 0] } else { shared_borders(sequence) };
                for border in borders.into_iter().filter(|border| (work.first + 1..=end).contains(border)) {
                    let hash = sequence.hashes[border / BLOCK_TOKENS];
                    if self.cache.slots.find(&hash).is_some() || !left.insert(hash) {
                        continue;
                    }
                    if let Some(before) = sequence.left.take_if(|_| decoded) {
                        self.cache.slots.give_up(&before);
                    }
                    let slots = &mut self.cache.slots;
                    let slot = if decoded && is_awaited { slots.take_free() } else { slots.take() };
                    let Some(slot) = slot else { continue };
                    sequence.left = if decoded { Some(hash) } else { sequence.left };
                    work.snapshots.push((border, slot));
                    work.snapshots.sort_unstable();
                }
            }
        }
    }
}

/// The borders, in tokens, at which a sequence leaves copies of its state that others may wait for; 0 for none.
fn shared_borders(sequence: &Sequence) -> [usize; 2] {
    [sequence.branch, (sequence.prompt_len - 1) / BLOCK_TOKENS * BLOCK_TOKENS]
}

/// The last border before `end`, if it comes after those of the prompt; else 0.
fn decoded_border(sequence: &Sequence, end: usize) -> usize {
    let border = end / BLOCK_TOKENS * BLOCK_TOKENS;
    if border >= sequence.prompt_len { border } else { 0 }
}

/// The hashes of the states that a sequence has yet to compute and will leave copies of for others.
pub(super) fn to_come(sequence: &Sequence) -> impl Iterator<Item = BlockHash> {
    let borders = shared_borders(sequence).into_iter().filter(|border| *border > sequence.computed);
    borders.filter_map(|border| sequence.hashes.get(border / BLOCK_TOKENS).copied())
}
