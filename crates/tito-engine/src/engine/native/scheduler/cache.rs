//! The past of sequences: their blocks of keys and values, and their slots of recurrent states.

use super::{plan::Work, sequence::Sequence, told};
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
