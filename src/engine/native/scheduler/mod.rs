//! Who computes what in the next step.
//!
//! Pure logic over token ids and block numbers. Sequences that run go on, decoding ones first; then those that wait are
//! admitted in the order of their arrival, as far as tokens, seats and blocks reach. When blocks run out, the sequence
//! that came last gives its own back and waits again; what it had computed is computed anew, or found in the cache.
//!
//! Blocks are shared only once they are computed. A sequence whose next block is just being computed for another one
//! waits for it rather than computing it too: so the samples of a group share their prompt, and copy its last block,
//! which is not whole.

mod admission;
mod sequence;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub(crate) use sequence::{NewSequence, SequenceId};

use self::sequence::Sequence;
use super::{
    backend::BLOCK_TOKENS,
    kv_cache::{BlockId, KvCache},
};
use crate::TokenId;

/// The bounds of a scheduler.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Sequences that run at a time.
    pub(crate) max_num_seqs: usize,
    /// Tokens of a step, over all sequences.
    pub(crate) max_num_batched_tokens: usize,
}

/// A sequence's share of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Work {
    /// Whose.
    pub(crate) id: SequenceId,
    /// The position of the first token to compute.
    pub(crate) first: usize,
    /// The tokens to compute.
    pub(crate) token_ids: Vec<TokenId>,
    /// The sequence's blocks, enough for these tokens.
    pub(crate) blocks: Vec<BlockId>,
    /// For each token of the prompt to score: the row of its predecessor among `token_ids`, and its id.
    pub(crate) scores: Vec<(usize, TokenId)>,
    /// Whether the last token's logits give the next token.
    pub(crate) samples: bool,
}

/// A step.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Blocks to copy before anything is computed, `(from, to)`, in this order.
    pub(crate) copies: Vec<(BlockId, BlockId)>,
    /// At most one for each sequence.
    pub(crate) work: Vec<Work>,
    /// Sequences that run for the first time, with the tokens of their prompts that were cached.
    pub(crate) admitted: Vec<(SequenceId, usize)>,
    /// Sequences that had to give their blocks back.
    pub(crate) preempted: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Scheduler {
    bounds: Bounds,
    cache: KvCache,
    weight_version: u64,
    /// In the order of arrival.
    running: Vec<Sequence>,
    /// In the order of arrival.
    waiting: VecDeque<Sequence>,
}

impl Scheduler {
    /// A scheduler over `blocks` blocks.
    pub(crate) fn new(bounds: Bounds, blocks: usize) -> Self {
        Self { bounds, cache: KvCache::new(blocks), weight_version: 0, running: Vec::new(), waiting: VecDeque::new() }
    }

    /// The longest sequence that all blocks together can hold, in tokens.
    pub(crate) fn longest_sequence(&self) -> usize {
        self.cache.len() * BLOCK_TOKENS
    }

    /// Queues a sequence that fits into [`Scheduler::longest_sequence`].
    pub(crate) fn add(&mut self, new: NewSequence) {
        debug_assert!(new.prompt_token_ids.len() + new.max_tokens <= self.longest_sequence() + 1, "checked before");
        self.waiting.push_back(Sequence::new(new));
    }

    /// Sequences that run, and that wait.
    pub(crate) fn load(&self) -> (usize, usize) {
        (self.running.len(), self.waiting.len())
    }

    /// The share of blocks that sequences hold, from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub(crate) fn usage(&self) -> f64 {
        self.cache.held() as f64 / self.cache.len().max(1) as f64
    }

    /// How often a sequence was preempted.
    pub(crate) fn preemptions(&self, id: SequenceId) -> u32 {
        self.running.iter().chain(&self.waiting).find(|sequence| sequence.id == id).map_or(0, |found| found.preemptions)
    }

    /// Plans a step; the plan is empty if there is nothing to do.
    pub(crate) fn plan(&mut self) -> Plan {
        let mut plan = Plan::default();
        let mut budget = self.bounds.max_num_batched_tokens;
        for prefilling in [false, true] {
            let mut index = 0;
            while index < self.running.len() && budget > 0 {
                let sequence = &self.running[index];
                if sequence.is_prefilling() == prefilling {
                    let tokens = sequence.remaining().min(budget);
                    if self.make_room(index, tokens, &mut plan, &mut budget) {
                        plan.work.push(work(&self.running[index], tokens));
                        budget -= tokens;
                    }
                }
                index += 1;
            }
        }
        // Who had to make room now would only be in the way again.
        if plan.preempted == 0 {
            self.admit(&mut plan, &mut budget);
        }
        plan
    }

    /// Gives the sequence blocks for `tokens` more tokens, taking them from those that came after it where it must;
    /// `false` if it had to give its own back instead.
    fn make_room(&mut self, index: usize, tokens: usize, plan: &mut Plan, budget: &mut usize) -> bool {
        let needed = (self.running[index].computed + tokens).div_ceil(BLOCK_TOKENS);
        while self.running[index].blocks.len() < needed {
            if let Some(block) = self.cache.take() {
                self.running[index].blocks.push(block);
                continue;
            }
            let last = self.running.len() - 1;
            self.preempt(last, plan, budget);
            if last == index {
                return false;
            }
        }
        true
    }

    /// Sends a sequence back to the queue, without its blocks.
    fn preempt(&mut self, index: usize, plan: &mut Plan, budget: &mut usize) {
        let mut sequence = self.running.remove(index);
        if let Some(at) = plan.work.iter().position(|work| work.id == sequence.id) {
            *budget += plan.work.remove(at).token_ids.len();
        }
        release(&mut self.cache, &mut sequence);
        sequence.preemptions += 1;
        plan.preempted += 1;
        self.requeue(sequence);
    }

    /// Puts a sequence back among those that wait: some may be older, which others were let pass.
    fn requeue(&mut self, sequence: Sequence) {
        let place = self.waiting.partition_point(|waiting| waiting.id < sequence.id);
        self.waiting.insert(place, sequence);
    }

    /// Takes note that a plan was computed: its blocks can be shared from now on.
    pub(crate) fn commit(&mut self, plan: &Plan) {
        for work in &plan.work {
            let Some(sequence) = self.running.iter_mut().find(|sequence| sequence.id == work.id) else { continue };
            let before = sequence.computed / BLOCK_TOKENS;
            sequence.computed = work.first + work.token_ids.len();
            if sequence.scores_prompt {
                sequence.scored = sequence.scored.max(sequence.computed.min(sequence.prompt_len - 1));
            }
            sequence.hash(self.weight_version);
            for block in before..sequence.computed / BLOCK_TOKENS {
                self.cache.publish(sequence.blocks[block], sequence.hashes[block + 1]);
            }
        }
    }

    /// Appends a sampled token.
    pub(crate) fn push(&mut self, id: SequenceId, token: TokenId) {
        if let Some(sequence) = self.running.iter_mut().find(|sequence| sequence.id == id) {
            sequence.token_ids.push(token);
        }
    }

    /// Ends a sequence, wherever it is, and lets go of its blocks; `false` if it is unknown.
    pub(crate) fn remove(&mut self, id: SequenceId) -> bool {
        if let Some(index) = self.running.iter().position(|sequence| sequence.id == id) {
            release(&mut self.cache, &mut self.running.remove(index));
            return true;
        }
        let place = self.waiting.iter().position(|sequence| sequence.id == id);
        place.and_then(|index| self.waiting.remove(index)).is_some()
    }

    /// Forgets what is cached; `false` while sequences hold blocks, which keep what they have.
    pub(crate) fn reset_prefix_cache(&mut self) -> bool {
        let unused = self.cache.held() == 0;
        if unused {
            self.cache.forget();
        }
        unused
    }

    /// Starts over with new weights: nothing that was computed is used again, and sequences that run are computed anew.
    pub(crate) fn change_weights(&mut self, weight_version: u64) {
        self.weight_version = weight_version;
        while let Some(mut sequence) = self.running.pop() {
            release(&mut self.cache, &mut sequence);
            self.requeue(sequence);
        }
        for sequence in &mut self.waiting {
            sequence.hashes.clear();
            // Half of a prompt's log-probs must not come from other weights than the other half.
            if sequence.scored < sequence.prompt_len - 1 {
                sequence.scored = 0;
            }
        }
        self.cache.forget();
    }

    /// The number of blocks that sequences hold.
    #[cfg(test)]
    pub(crate) fn held_blocks(&self) -> usize {
        self.cache.held()
    }
}

/// Lets go of a sequence's blocks, the last one first, so that the beginnings of sequences are kept longest.
fn release(cache: &mut KvCache, sequence: &mut Sequence) {
    for block in sequence.blocks.drain(..).rev() {
        cache.release(block);
    }
    sequence.computed = 0;
}

/// The next `tokens` tokens of a sequence.
fn work(sequence: &Sequence, tokens: usize) -> Work {
    let first = sequence.computed;
    let end = first + tokens;
    let token_ids = sequence.token_ids[first..end].to_vec();
    let scores = if sequence.scores_prompt {
        let rows = first.max(sequence.scored)..end.min(sequence.prompt_len - 1);
        rows.map(|position| (position - first, sequence.token_ids[position + 1])).collect()
    } else {
        Vec::new()
    };
    let blocks = sequence.blocks[..end.div_ceil(BLOCK_TOKENS)].to_vec();
    Work { id: sequence.id, first, token_ids, blocks, scores, samples: end == sequence.token_ids.len() }
}
