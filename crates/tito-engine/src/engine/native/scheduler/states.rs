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

use super::{Scheduler, plan::Plan, sequence::Sequence};
use crate::engine::native::{backend::BLOCK_TOKENS, kv_cache::BlockHash};

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
