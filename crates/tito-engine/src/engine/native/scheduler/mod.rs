//! Who computes what in the next step.
//!
//! Pure logic over token ids and block numbers. Sequences that run go on, decoding ones first; then those that wait are
//! admitted as parties and requests take turns, as far as tokens, seats and blocks reach. When blocks run out, the
//! youngest sequence of whoever has the most gives its own back and waits again; what it had computed is computed anew,
//! or found in the cache. It also gives them back for a request that has no sequence running, if another request has
//! many. The oldest running sequence never gives its blocks back, so there is always one that finishes. Sequences that
//! pause, because nobody reads what was sampled for them, have no seat, and are the first to give their blocks back.
//!
//! Blocks are shared only once they are computed. A sequence whose next block is just being computed for another one
//! waits for it rather than computing it too: so the samples of a group share their prompt, and copy its last block,
//! which is not whole.
//!
//! Where layers have recurrent states, a sequence that runs has a *slot* for its own besides its blocks, and goes on only
//! from tokens whose blocks and state are both there: see `states`.

mod adapter_slots;
mod adapters;
mod admission;
mod ahead;
mod cache;
mod drafts;
mod paused;
mod pieces;
mod plan;
mod running;
mod sequence;
mod states;
#[cfg(test)]
mod tests;
mod told;

pub(crate) use plan::{DraftWish, Plan, Work};
pub(crate) use sequence::{NewSequence, SequenceId};

use self::{adapter_slots::AdapterSlots, cache::Cache, running::Running, sequence::Sequence};
use super::{backend::BLOCK_TOKENS, drafts::Drafter, kv_cache::Told};
use crate::{
    TokenId,
    engine::{OnWeightsChange, seat_queue::SeatQueue},
};

/// The bounds of a scheduler.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Sequences that run at a time.
    pub(crate) max_num_seqs: usize,
    /// Tokens of a step, over all sequences.
    pub(crate) max_num_batched_tokens: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Scheduler {
    bounds: Bounds,
    cache: Cache,
    adapters: AdapterSlots,
    drafter: Option<Drafter>,
    weight_version: u64,
    running: Running,
    waiting: SeatQueue<Sequence>,
    /// The sequences that pause, in the order in which they began to. Those that have blocks keep them while nobody
    /// else needs them.
    paused: Vec<Sequence>,
    /// The number of steps so far.
    step: u64,
    contested: Contested,
    /// Whether a request came, beside others, since the last step.
    newcomer: bool,
}

/// The steps up to which requests, and parties, are to be mindful of each other.
#[derive(Debug, Default)]
struct Contested {
    requests: u64,
    parties: u64,
}

impl Scheduler {
    /// A scheduler over `blocks` blocks, and over `slots` slots where layers have recurrent states; 0 where none has.
    pub(crate) fn new(bounds: Bounds, blocks: usize, slots: usize) -> Self {
        let waiting = SeatQueue::new(bounds.max_num_seqs);
        Self {
            bounds,
            cache: Cache::new(blocks, slots),
            adapters: AdapterSlots::new(0),
            drafter: None,
            weight_version: 0,
            running: Running::default(),
            waiting,
            paused: Vec::new(),
            step: 0,
            contested: Contested::default(),
            newcomer: false,
        }
    }

    /// The same with slots for so many adapters.
    pub(crate) fn with_adapters(self, slots: usize) -> Self {
        Self { adapters: AdapterSlots::new(slots), ..self }
    }

    /// The same with somebody who is told which blocks are found. For a scheduler that was not used yet.
    pub(crate) fn telling(mut self, told: Told) -> Self {
        self.cache.tell(told);
        self
    }

    /// Hands on what there is to be told of blocks.
    pub(crate) fn tell(&mut self) {
        self.cache.tell_hidden();
        if let Some(told) = &mut self.cache.told {
            told.send();
        }
    }

    /// The longest sequence that all blocks together can hold, in tokens.
    pub(crate) fn longest_sequence(&self) -> usize {
        self.cache.blocks.len() * BLOCK_TOKENS
    }

    /// Queues a sequence that fits into [`Scheduler::longest_sequence`].
    pub(crate) fn add(&mut self, new: NewSequence) {
        debug_assert!(new.prompt_token_ids.len() + new.max_tokens <= self.longest_sequence() + 1, "checked before");
        let before = self.waiting.requests();
        let confidence = self.drafter.as_ref().map(Drafter::confidence).unwrap_or_default();
        self.waiting.wait(new.claimant.clone(), new.id, Sequence { confidence, ..Sequence::new(new) });
        self.newcomer |= before > 0 && self.waiting.requests() > before;
    }

    /// How many sequences run, and how many wait.
    pub(crate) fn load(&self) -> (usize, usize) {
        (self.running.len(), self.waiting.waiting())
    }

    /// The share of blocks that sequences hold, or that of slots if it is greater, from 0 to 1.
    pub(crate) fn usage(&self) -> f64 {
        self.cache.usage()
    }

    /// How often a sequence was preempted.
    pub(crate) fn preemptions(&self, id: SequenceId) -> u32 {
        let paused = || self.paused.iter().find(|sequence| sequence.id == id);
        let found = self.running.get(id).or_else(paused).or_else(|| self.waiting.get(id));
        found.map_or(0, |found| found.preemptions)
    }

    /// Takes note that a plan was computed: its blocks and copies of states can be shared from now on, but for those of
    /// sequences that ended meanwhile.
    pub(crate) fn commit(&mut self, plan: &Plan) {
        for work in &plan.work {
            if let Some(sequence) = self.running.get_mut(work.id) {
                let before = sequence.computed / BLOCK_TOKENS;
                sequence.computed = work.first + work.token_ids.len() - work.drafts;
                if sequence.scores_from.is_some() {
                    sequence.scored = sequence.scored.max(sequence.computed.min(sequence.prompt_len - 1));
                }
                sequence.hash(self.weight_version);
                if !sequence.reuses_older_keys {
                    self.cache.publish(sequence, before, work);
                }
            }
            self.cache.release_snapshots(work);
        }
    }

    /// Appends a sampled token. Those before it are computed: the last of them was a draft where it was not known yet.
    ///
    /// What a structured output has to go on with is the sequence's next draft.
    pub(crate) fn push(&mut self, id: SequenceId, token: TokenId, forced: Vec<TokenId>) {
        if let Some(sequence) = self.running.get_mut(id) {
            let before = sequence.computed / BLOCK_TOKENS;
            sequence.computed = sequence.token_ids.len();
            if sequence.computed / BLOCK_TOKENS > before {
                sequence.hash(self.weight_version);
                if !sequence.reuses_older_keys {
                    self.cache.publish_blocks(sequence, before);
                }
            }
            if let Some(drafter) = &mut self.drafter {
                drafter.record(sequence.draft_context(), token);
            }
            sequence.token_ids.push(token);
            sequence.forced = forced;
        }
    }

    /// Ends a sequence, wherever it is, and lets go of its blocks; `false` if it is unknown.
    pub(crate) fn remove(&mut self, id: SequenceId) -> bool {
        if let Some(mut sequence) = self.running.remove(id) {
            self.cache.release(&mut sequence);
            self.waiting.rise(&sequence.claimant);
            return true;
        }
        if let Some(index) = self.paused.iter().position(|sequence| sequence.id == id) {
            self.cache.release(&mut self.paused.remove(index));
            return true;
        }
        self.waiting.remove(id).is_some()
    }

    /// Forgets what is cached; `false` while sequences that run hold blocks, which keep what they have.
    pub(crate) fn reset_prefix_cache(&mut self) -> bool {
        let mut nothing = Plan::default();
        while self.reclaim(&mut nothing) {}
        let unused = self.cache.is_unused();
        if unused {
            self.cache.forget();
        }
        unused
    }

    /// Goes on with new weights: what is cached is found by nobody any more. Sequences are computed anew, or keep what
    /// they have for themselves.
    pub(crate) fn change_weights(&mut self, weight_version: u64, change: OnWeightsChange) {
        self.weight_version = weight_version;
        if change == OnWeightsChange::Recompute {
            self.give_back_blocks();
        }
        for sequence in self.running.iter_mut().chain(&mut self.paused) {
            // The log-probs of a prompt must not come from two versions of the weights, nor from others than the first
            // token.
            if sequence.blocks.is_empty() || sequence.owes_scores() {
                self.cache.release(sequence);
            }
            sequence.reuses_older_keys = !sequence.blocks.is_empty();
        }
        for sequence in self.waiting.iter_mut().chain(self.running.iter_mut()).chain(&mut self.paused) {
            if !sequence.reuses_older_keys {
                sequence.hashes.clear();
            }
            if sequence.owes_scores() {
                sequence.scored = sequence.scores_from.unwrap_or(0);
            }
        }
        for sequence in self.running.remove_all(|sequence| sequence.blocks.is_empty()) {
            self.requeue(sequence);
        }
        self.cache.forget();
    }

    /// Has all sequences give back what they hold; it is computed anew, or found in the cache.
    pub(crate) fn give_back_blocks(&mut self) {
        while let Some(mut sequence) = self.running.pop() {
            self.cache.release(&mut sequence);
            self.requeue(sequence);
        }
        for sequence in &mut self.paused {
            self.cache.release(sequence);
        }
    }

    /// Puts a sequence that ran back among those that wait.
    fn requeue(&mut self, sequence: Sequence) {
        let claimant = sequence.claimant.clone();
        self.waiting.wait(claimant.clone(), sequence.id, sequence);
        self.waiting.rise(&claimant);
    }

    /// Takes the blocks of the sequence that paused first among those that have any; `false` if none has.
    fn reclaim(&mut self, plan: &mut Plan) -> bool {
        let has_blocks = |sequence: &&mut Sequence| !sequence.blocks.is_empty();
        let Some(sequence) = self.paused.iter_mut().find(has_blocks) else { return false };
        self.cache.release(sequence);
        sequence.preemptions += 1;
        plan.reclaimed += 1;
        true
    }

    /// Whether a sequence reads keys and values that older weights wrote.
    pub(crate) fn reuses_older_keys(&self, id: SequenceId) -> bool {
        self.running.get(id).is_some_and(|sequence| sequence.reuses_older_keys)
    }

    /// The number of blocks that sequences hold.
    #[cfg(test)]
    pub(crate) fn held_blocks(&self) -> usize {
        self.cache.blocks.held()
    }
}
