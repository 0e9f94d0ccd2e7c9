//! Sequences whose clients do not read.
//!
//! A sequence pauses after a token, never within its prompt. Whatever becomes of its blocks, it goes on with the same
//! tokens: what decides the next one is not here, but with its sampler.

use super::{Scheduler, SequenceId};

impl Scheduler {
    /// Takes a running sequence out of the steps. It keeps its blocks as long as nobody else needs them.
    pub(crate) fn pause(&mut self, id: SequenceId) {
        if let Some(sequence) = self.running.remove(id) {
            self.waiting.rise(&sequence.claimant);
            self.paused.push(sequence);
        }
    }

    /// Lets a sequence go on: at once if its blocks, its adapter and a seat are there, else it waits for them.
    pub(crate) fn resume(&mut self, id: SequenceId) {
        let Some(index) = self.paused.iter().position(|sequence| sequence.id == id) else { return };
        let mut sequence = self.paused.remove(index);
        let has_all = !sequence.blocks.is_empty() && self.adapters.has(&sequence);
        let goes_on = has_all && self.running.len() < self.bounds.max_num_seqs;
        if !goes_on {
            self.cache.release(&mut sequence);
        }
        self.waiting.wait(sequence.claimant.clone(), id, sequence);
        if goes_on && let Some((_, sequence)) = self.waiting.seat(id) {
            self.running.insert(sequence);
        }
    }

    /// How many sequences pause.
    pub(crate) fn paused(&self) -> usize {
        self.paused.len()
    }

    /// Whether there is nothing to compute before a sequence comes or goes on.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.waiting() == 0
    }
}
