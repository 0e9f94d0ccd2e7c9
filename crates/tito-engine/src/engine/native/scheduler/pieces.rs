//! How the tokens of a step are shared.
//!
//! Sequences that decode have a token each; where that is more than half of a step and prompts wait, they take turns. A
//! quarter of the rest is for prompts that are short, and a quarter for those who are admitted, so that neither waits
//! for the end of a long prompt. What is left goes to the prompts in their line, the first one of which gets all of it.
//!
//! A step takes as long as it has tokens, and sequences that decode cost most of all: each of them has logits. So a
//! request has only so many sequences in a step that a newcomer does not wait long for the next one, and fewer while
//! there is another request, or was a moment ago; its sequences then take turns among themselves. Likewise a party that is
//! not alone, with all of its requests. Beyond that many rows a processor gains little by computing more of them at once.
//! The step after a request came is the one that its first token waits for: of each request that runs, it has only a few
//! sequences, and none that waited.

use std::{collections::HashMap, hash::Hash};

use super::{
    Scheduler, SequenceId,
    plan::{Plan, work},
    sequence::Sequence,
};
use crate::engine::native::backend::BLOCK_TOKENS;

/// A prompt is short if it is no longer than this part of what a step has for prompts.
const SHORT: usize = 8;
/// The part of a step that is kept for short prompts, and for those who are admitted.
pub(super) const KEPT: usize = 4;
/// No request has more sequences in a step than this part of its rows.
const ROWS: usize = 8;
const LEAST_ROWS: usize = 64;
/// Rows of a step that a party gets that is not alone.
const ROWS_OF_A_PARTY: usize = 16;
const LEAST_ROWS_OF_A_PARTY: usize = 32;
/// Rows of a step that a request gets that is not alone.
const ROWS_BESIDE_OTHERS: usize = 32;
const LEAST_ROWS_BESIDE_OTHERS: usize = 16;
/// Rows that a running request gets in the next step once another one comes.
const ROWS_BESIDE_A_NEWCOMER: usize = 128;
const LEAST_ROWS_BESIDE_A_NEWCOMER: usize = 4;
/// A request that is not alone gets no more than this part of a step for a prompt, but at least `LEAST_PIECE` tokens.
const PIECE: usize = 4;
const LEAST_PIECE: usize = 128;
/// For so many steps, a request or a party that was not alone counts as not being alone.
const MOMENT: u64 = 64;

impl Scheduler {
    /// Plans a step; the plan is empty if there is nothing to do.
    pub(crate) fn plan(&mut self) -> Plan {
        let mut plan = Plan::default();
        let mut budget = self.bounds.max_num_batched_tokens;
        self.begin_plan();
        let decoding = self.decoding();
        let prefills = decoding.len() < self.running.len() || self.waiting.waiting() > 0;
        // Where a step has one token, prompts and outputs get it in turns.
        let share = match (prefills, budget) {
            (false, _) => budget,
            (true, 1) => usize::from(self.step.is_multiple_of(2)),
            (true, _) => budget / 2,
        };
        // So that a long image is not put off for ever.
        if self.step.is_multiple_of(2) {
            self.give_next_image(&mut plan, &mut budget);
        }
        let (first, rest) = decoding.split_at(decoding.len().min(share).min(budget));
        for id in first {
            self.give(*id, 1, &mut plan, &mut budget);
        }
        self.prompts(&mut plan, &mut budget);
        self.admit(&mut plan, &mut budget);
        self.lengthen(&mut plan, &mut budget);
        for id in rest {
            self.give(*id, 1, &mut plan, &mut budget);
        }
        self.take_note(&plan);
        self.draft(&mut plan, budget);
        self.newcomer = false;
        self.leave_states(&mut plan);
        plan
    }

    /// Counts a step, and notes who is not alone.
    pub(super) fn begin_plan(&mut self) {
        self.step += 1;
        if self.waiting.requests() > 1 {
            self.contested.requests = self.step + MOMENT;
        }
        if self.waiting.parties() > 1 {
            self.contested.parties = self.step + MOMENT;
        }
    }

    /// The sequences that decode, as they take turns: of every party one, then of every party one more, and of a
    /// party's requests likewise, who was served last coming last.
    fn decoding(&self) -> Vec<SequenceId> {
        let mut rows: Vec<&Sequence> = self.running.iter().filter(|sequence| !sequence.is_prefilling()).collect();
        let of_request = self.most_rows();
        let of_party = self.most_rows_of_a_party();
        if rows.len() > of_request.min(self.bounds.max_num_batched_tokens / 2) {
            rows.sort_by_key(|row| (row.step, row.id));
            let in_request = ranks(rows.iter().map(|row| row.claimant.request));
            let mut ranked: Vec<_> = in_request.into_iter().zip(rows).filter(|(rank, _)| *rank < of_request).collect();
            ranked.sort_by_key(|(rank, row)| (*rank, row.step, row.id));
            let in_party = ranks(ranked.iter().map(|(_, row)| &row.claimant.party));
            let mut ranked: Vec<_> = in_party.into_iter().zip(ranked).filter(|(rank, _)| *rank < of_party).collect();
            ranked.sort_by_key(|(rank, (_, row))| (*rank, row.step, row.id));
            rows = ranked.into_iter().map(|(_, (_, row))| row).collect();
        }
        rows.into_iter().map(|row| row.id).collect()
    }

    /// The most sequences that a request may have in a step.
    pub(super) fn most_sequences(&self) -> usize {
        let tokens = self.bounds.max_num_batched_tokens;
        let alone = (tokens / ROWS).max(LEAST_ROWS);
        alone.min(
            self.unless_alone(self.contested.requests, (tokens / ROWS_BESIDE_OTHERS).max(LEAST_ROWS_BESIDE_OTHERS)),
        )
    }

    /// The most sequences of a request that may decode in this step.
    fn most_rows(&self) -> usize {
        let beside = (self.bounds.max_num_batched_tokens / ROWS_BESIDE_A_NEWCOMER).max(LEAST_ROWS_BESIDE_A_NEWCOMER);
        self.most_sequences().min(if self.newcomer { beside } else { usize::MAX })
    }

    /// The most sequences of a party that may decode in a step.
    fn most_rows_of_a_party(&self) -> usize {
        let most = (self.bounds.max_num_batched_tokens / ROWS_OF_A_PARTY).max(LEAST_ROWS_OF_A_PARTY);
        self.unless_alone(self.contested.parties, most)
    }

    /// The bound `most` for whoever counts as not being alone until step `contested`, and none for others.
    fn unless_alone(&self, contested: u64, most: usize) -> usize {
        if self.step <= contested { most } else { usize::MAX }
    }

    /// The most tokens of a prompt that a step computes.
    pub(super) fn longest_piece(&self) -> usize {
        self.unless_alone(self.contested.requests, (self.bounds.max_num_batched_tokens / PIECE).max(LEAST_PIECE))
    }

    /// Gives the first prompt in line the image that it has come to, if that is seen both ways.
    fn give_next_image(&mut self, plan: &mut Plan, budget: &mut usize) {
        let Some((id, _)) = self.prompts_in_line().first().copied() else { return };
        let next = self.running.get(id).map_or(1, Sequence::least_piece);
        if next > 1 {
            self.give(id, next, plan, budget);
        }
    }

    /// Goes on with prompts.
    fn prompts(&mut self, plan: &mut Plan, budget: &mut usize) {
        let prompts = self.prompts_in_line();
        let mut short = *budget / KEPT;
        let most = *budget / SHORT;
        let kept = if self.waiting.waiting() > 0 { *budget / KEPT } else { 0 };
        for (id, remaining) in &prompts {
            if *remaining <= most && *remaining <= short && !plan.has(*id) {
                short -= remaining;
                self.give(*id, *remaining, plan, budget);
            }
        }
        let mut left = budget.saturating_sub(kept);
        for (id, remaining) in prompts {
            let tokens = remaining.min(left).min(self.longest_piece());
            let tokens = self.running.get(id).map_or(0, |sequence| sequence.piece(tokens, *budget));
            if tokens > 0 && !plan.has(id) {
                let before = *budget;
                self.give(id, tokens, plan, budget);
                // Sequences that had to make room leave their tokens to others.
                left = (left + *budget).saturating_sub(before);
            }
        }
    }

    /// The running sequences whose prompts are not computed yet, in the order in which they are served, and how much of
    /// each is left.
    fn prompts_in_line(&self) -> Vec<(SequenceId, usize)> {
        let prompts = self.running.iter().filter(|sequence| sequence.is_prefilling());
        let mut prompts: Vec<_> = prompts
            .map(|sequence| (self.waiting.prompt_place(&sequence.claimant), sequence.id, sequence.remaining()))
            .collect();
        prompts.sort_unstable();
        prompts.into_iter().map(|(_, id, remaining)| (id, remaining)).collect()
    }

    /// Makes pieces longer as far as tokens and blocks are left; nobody makes room for that.
    fn lengthen(&mut self, plan: &mut Plan, budget: &mut usize) {
        let longest = self.longest_piece();
        for (id, remaining) in self.prompts_in_line() {
            let Some(running) = self.running.get_mut(id) else { continue };
            let Some(piece) = plan.work.iter_mut().find(|work| work.id == id) else { continue };
            let before = piece.token_ids.len();
            let wanted = remaining.min(before + *budget).min(longest.max(before));
            while running.blocks.len() * BLOCK_TOKENS < running.computed + wanted
                && let Some(block) = self.cache.blocks.take()
            {
                running.blocks.push(block);
            }
            let tokens = wanted.min(running.blocks.len() * BLOCK_TOKENS - running.computed);
            let tokens = running.piece(tokens, tokens);
            if tokens > before {
                *budget -= tokens - before;
                *piece = work(running, tokens);
            }
        }
    }

    /// Gives a running sequence its next `tokens` tokens, if there are so many and it can have the blocks.
    fn give(&mut self, id: SequenceId, tokens: usize, plan: &mut Plan, budget: &mut usize) {
        if tokens <= *budget
            && self.make_room(id, tokens, plan, budget)
            && let Some(sequence) = self.running.get(id)
        {
            plan.work.push(work(sequence, tokens));
            *budget -= tokens;
        }
    }

    /// Gives a running sequence blocks for `tokens` more tokens, taking them from those who have to give way where it
    /// must; `false` if it had to give way itself.
    fn make_room(&mut self, id: SequenceId, tokens: usize, plan: &mut Plan, budget: &mut usize) -> bool {
        loop {
            let Some(sequence) = self.running.get_mut(id) else { return false };
            if sequence.blocks.len() * BLOCK_TOKENS >= sequence.computed + tokens {
                return true;
            }
            if let Some(block) = self.cache.blocks.take() {
                sequence.blocks.push(block);
                continue;
            }
            if self.reclaim(plan) {
                continue;
            }
            let excess = |sequence: &Sequence| (self.waiting.excess(&sequence.claimant), sequence.id);
            let Some((_, last)) = self.running.iter().map(excess).max() else { return false };
            self.preempt(last, plan, budget);
        }
    }

    /// Sends a sequence back to the queue, without its blocks and its slot.
    pub(super) fn preempt(&mut self, id: SequenceId, plan: &mut Plan, budget: &mut usize) {
        let Some(mut sequence) = self.running.remove(id) else { return };
        if let Some(at) = plan.work.iter().position(|work| work.id == id) {
            *budget += plan.work.remove(at).token_ids.len();
        }
        self.cache.release(&mut sequence);
        sequence.preemptions += 1;
        plan.preempted += 1;
        self.requeue(sequence);
    }

    /// Remembers who was served.
    fn take_note(&mut self, plan: &Plan) {
        for work in &plan.work {
            let Some(sequence) = self.running.get_mut(work.id) else { continue };
            if sequence.is_prefilling() {
                self.waiting.compute(&sequence.claimant, work.token_ids.len());
            }
            sequence.step = self.step;
        }
    }
}

/// For each key, how many equal ones come before it.
fn ranks<K: Eq + Hash>(keys: impl Iterator<Item = K>) -> Vec<usize> {
    let mut counts: HashMap<K, usize> = HashMap::new();
    let rank = |key| {
        let count = counts.entry(key).or_default();
        *count += 1;
        *count - 1
    };
    keys.map(rank).collect()
}
