//! Who of those that wait may run.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{
    Scheduler, SequenceId,
    adapter_slots::Seat,
    pieces::KEPT,
    plan::{Plan, work},
    sequence::Sequence,
    states,
};
use crate::engine::{
    native::{
        backend::BLOCK_TOKENS,
        kv_cache::{BlockHash, BlockId},
        recurrence::SlotId,
    },
    seat_queue::Passed,
};

/// What is there of a sequence before it runs.
#[derive(Debug, Default)]
struct Found {
    /// Whole blocks, from the first one on.
    blocks: Vec<BlockId>,
    /// A block that begins as the next one does, and in how many tokens they agree; at least one token is left to
    /// compute.
    copy: Option<(BlockId, usize)>,
    /// The slot that holds the state after the whole blocks.
    state: Option<SlotId>,
    /// More whole blocks that are there, or are being computed, but whose state nobody has.
    stateless: usize,
}

/// What is being computed for the first time.
#[derive(Debug, Default)]
struct Pending {
    /// Whole blocks, and tails.
    blocks: HashSet<BlockHash>,
    /// States of which copies will be left.
    states: HashSet<BlockHash>,
}

impl Pending {
    /// Takes note of what a running sequence has yet to compute.
    fn note(&mut self, sequence: &Sequence) {
        self.blocks.extend(hashes_to_come(sequence));
        self.states.extend(states::to_come(sequence));
    }
}

impl Found {
    fn tokens(&self) -> usize {
        self.blocks.len() * BLOCK_TOKENS + self.copy.map_or(0, |(_, tokens)| tokens)
    }

    /// Leaves out what ends within an image that is to be computed as a whole.
    fn end_before_image(&mut self, sequence: &Sequence) {
        let Some(image) = sequence.cut_at(self.tokens()) else { return };
        let (blocks, tokens) = (image.start / BLOCK_TOKENS, image.start % BLOCK_TOKENS);
        let next = self.blocks.get(blocks).copied().or(self.copy.map(|(block, _)| block));
        self.blocks.truncate(blocks);
        self.copy = next.filter(|_| tokens > 0).map(|block| (block, tokens));
    }
}

/// What a step has for a sequence that is admitted.
#[derive(Debug, Clone, Copy)]
struct Room {
    /// Tokens that it gets at the most, unless it begins with a longer image.
    piece: usize,
    /// Tokens that the step has left.
    all: usize,
}

impl Room {
    /// How many tokens it gets where so much was found.
    fn next(self, sequence: &Sequence, found: &Found) -> usize {
        let computed = found.tokens();
        sequence.piece_after(computed, (sequence.token_ids.len() - computed).min(self.piece), self.all)
    }
}

/// What each request was given of a step.
struct Shares {
    most_sequences: usize,
    most_tokens: usize,
    /// Sequences and tokens, by request.
    given: HashMap<u64, (usize, usize)>,
}

impl Shares {
    fn new(most_sequences: usize, most_tokens: usize) -> Self {
        Self { most_sequences, most_tokens, given: HashMap::new() }
    }

    fn are_used_up(&self, request: u64) -> bool {
        let given = self.given.get(&request);
        given.is_some_and(|(sequences, tokens)| *sequences >= self.most_sequences || *tokens >= self.most_tokens)
    }

    fn give(&mut self, request: u64, tokens: usize) {
        let given = self.given.entry(request).or_default();
        *given = (given.0 + 1, given.1 + tokens);
    }

    /// Nothing more of this step is for `request`.
    fn close(&mut self, request: u64) {
        self.given.insert(request, (self.most_sequences, self.most_tokens));
    }
}

impl Scheduler {
    /// Admits sequences as far as the step's tokens, the seats, the blocks and the slots reach, as they take turns; only
    /// one whose beginning is just being computed for another one lets others pass. Where there is nothing left for
    /// somebody who is owed one, the youngest of who has the most gives way.
    pub(super) fn admit(&mut self, plan: &mut Plan, budget: &mut usize) {
        // Most steps: what follows would be looked up for nobody.
        if self.waiting.waiting() == 0 {
            return;
        }
        let mut pending = self.pending();
        let mut passed = Passed::default();
        let most = (self.bounds.max_num_batched_tokens / KEPT).max(BLOCK_TOKENS);
        let mut seated = Vec::new();
        let mut shares = self.shares(plan);
        let mut claimed = BTreeSet::new();
        while *budget > 0
            && let Some((claimant, number)) = self.waiting.next(&passed)
        {
            let claimant = claimant.clone();
            if shares.are_used_up(claimant.request) {
                passed.pass_all(claimant.request);
                continue;
            }
            let owing = self.waiting.owing(&claimant);
            // Who had to make room now would only be in the way again.
            if plan.preempted > 0 && owing.is_none() {
                break;
            }
            if let Some(sequence) = self.waiting.get_mut(number) {
                sequence.hash(self.weight_version);
            }
            let Some(sequence) = self.waiting.get(number) else { break };
            let seat = self.seat(sequence.adapter.as_ref(), &mut claimed);
            if seat == Seat::Nowhere {
                passed.pass_all(claimant.request);
                continue;
            }
            let mut found = self.find(sequence, &pending);
            if self.is_pending(sequence, &found, &pending) {
                passed.pass(claimant.request, number);
                continue;
            }
            let room = Room { piece: (*budget).min(most), all: *budget };
            // Nothing is copied in a step that computes nothing.
            if room.next(sequence, &found) == 0 {
                found.copy = None;
            }
            let started =
                self.running.len() < self.bounds.max_num_seqs && self.start(number, (&found, &seat), plan, room);
            if started {
                let Some(sequence) = self.running.get(number) else { break };
                let tokens = room.next(sequence, &found);
                *budget -= tokens;
                shares.give(claimant.request, tokens);
                pending.note(sequence);
                // It waits for a step that has room for the image that it begins with.
                if tokens > 0 {
                    plan.work.push(work(sequence, tokens));
                }
                seated.push(number);
                continue;
            }
            let youngest = owing.and_then(|owing| self.running.iter().rfind(|running| running.claimant == owing));
            match youngest.map(|sequence| sequence.id).filter(|id| !seated.contains(id)) {
                Some(youngest) => self.preempt(youngest, plan, budget),
                None => break,
            }
        }
    }

    /// What was given of this step before admission.
    fn shares(&self, plan: &Plan) -> Shares {
        let mut shares = Shares::new(self.most_sequences(), self.longest_piece());
        for work in &plan.work {
            if let Some(sequence) = self.running.get(work.id) {
                shares.give(sequence.claimant.request, work.token_ids.len());
            }
        }
        if self.newcomer {
            for sequence in self.running.iter() {
                shares.close(sequence.claimant.request);
            }
        }
        shares
    }

    /// What is being computed for the first time.
    fn pending(&self) -> Pending {
        let mut pending = Pending::default();
        self.running.iter().filter(|sequence| sequence.is_prefilling()).for_each(|sequence| pending.note(sequence));
        pending
    }

    /// Whether the next block of the sequence is being computed for another one; or, where there are recurrent states,
    /// whether another one will leave a copy of a state from which it could go on farther than now.
    fn is_pending(&self, sequence: &Sequence, found: &Found, pending: &Pending) -> bool {
        if self.cache.has_states() {
            let farther = &sequence.hashes[found.blocks.len() + 1..=sequence.reusable() / BLOCK_TOKENS];
            return farther.iter().any(|hash| pending.states.contains(hash));
        }
        let pending = &pending.blocks;
        // What comes after the first position to score is computed here anyway.
        let of_use = !sequence.is_scoring() || (found.blocks.len() + 1) * BLOCK_TOKENS <= sequence.reusable();
        if pending.is_empty() || !of_use {
            return false;
        }
        match sequence.hashes.get(found.blocks.len() + 1) {
            Some(next) => pending.contains(next) && self.cache.blocks.find(next).is_none(),
            // If the tail has one token only, there is nothing of it that could be copied.
            None => {
                sequence.token_ids.len() % BLOCK_TOKENS > 1
                    && found.copy.is_none()
                    && sequence.tail_hash().is_some_and(|tail| pending.contains(&tail))
            }
        }
    }

    /// Looks for what is computed already.
    fn find(&self, sequence: &Sequence, pending: &Pending) -> Found {
        let mut found = Found::default();
        let reusable = sequence.reusable();
        let whole = sequence.hashes[1..].iter().take(reusable / BLOCK_TOKENS);
        found.blocks = whole.clone().map_while(|hash| self.cache.blocks.find(hash)).collect();
        if self.cache.has_states() {
            let coming = whole.skip(found.blocks.len()).take_while(|hash| pending.blocks.contains(hash)).count();
            let shared = found.blocks.len() + coming;
            let (blocks, state) = self.cache.deepest_state(&sequence.hashes[..=found.blocks.len()]);
            found.blocks.truncate(blocks);
            return Found { state, stateless: shared - blocks, ..found };
        }
        let start = found.blocks.len() * BLOCK_TOKENS;
        let wanted = &sequence.token_ids[start..reusable.min(start + BLOCK_TOKENS)];
        if wanted.is_empty() {
            found.end_before_image(sequence);
            return found;
        }
        found.copy = match sequence.hashes.get(found.blocks.len() + 1).and_then(|hash| self.cache.blocks.find(hash)) {
            Some(block) => Some((block, wanted.len())),
            None => self.find_running(sequence, found.blocks.len(), wanted),
        };
        found.end_before_image(sequence);
        found
    }

    /// Looks among the running sequences for one that went on from the same whole blocks with most of the same tokens.
    fn find_running(&self, sequence: &Sequence, block: usize, wanted: &[crate::TokenId]) -> Option<(BlockId, usize)> {
        let start = block * BLOCK_TOKENS;
        let agreeing = self.running.iter().filter_map(|running| {
            let computed = start..running.computed.min(start + wanted.len());
            if running.hashes.get(block)? != &sequence.hashes[block] {
                return None;
            }
            let agree = computed.take_while(|index| running.agrees(sequence, *index)).count();
            (agree > 0).then(|| (running.blocks[block], agree))
        });
        agreeing.max_by_key(|(_, agree)| *agree)
    }

    /// Lets one that waits run, with what was found, the blocks that its first tokens need, a slot, and its adapter in one; `false`, with
    /// nothing changed but that no sequence that pauses keeps blocks, if there are too few.
    fn start(&mut self, id: SequenceId, (found, seat): (&Found, &Seat), plan: &mut Plan, room: Room) -> bool {
        let Some(tokens) = self.waiting.get(id).map(|sequence| room.next(sequence, found)) else { return false };
        let computed = found.tokens();
        let needed = (computed + tokens).div_ceil(BLOCK_TOKENS) - found.blocks.len();
        loop {
            let kept = found.blocks.iter().filter(|block| self.cache.blocks.is_kept(**block)).count();
            if needed + kept <= self.cache.blocks.available() && self.cache.has_slot() {
                break;
            }
            if !self.reclaim(plan) {
                return false;
            }
        }
        let Some((_, mut sequence)) = self.waiting.seat(id) else { return false };
        self.sit(seat, &mut sequence, plan);
        for block in &found.blocks {
            self.cache.blocks.hold(*block);
        }
        sequence.blocks.clone_from(&found.blocks);
        sequence.blocks.extend((0..needed).map_while(|_| self.cache.blocks.take()));
        sequence.slot = self.cache.take_slot(found.state, &mut plan.restores);
        sequence.branch = if found.stateless > 0 { computed + found.stateless * BLOCK_TOKENS } else { 0 };
        if let Some((from, _)) = found.copy {
            plan.copies.push((from, sequence.blocks[found.blocks.len()]));
        }
        sequence.computed = computed;
        if sequence.cached_tokens.is_none() {
            sequence.cached_tokens = Some(computed);
            plan.admitted.push((id, computed));
        }
        // A preempted sequence may be older than some that run.
        self.running.insert(sequence);
        true
    }
}

/// The hashes of the blocks that a sequence has yet to compute, and that of its tail.
fn hashes_to_come(sequence: &Sequence) -> Vec<BlockHash> {
    let next = (sequence.computed / BLOCK_TOKENS + 1).min(sequence.hashes.len());
    sequence.hashes[next..].iter().copied().chain(sequence.tail_hash()).collect()
}
