//! The step after one whose tokens nobody knows yet.
//!
//! Sequences that decode go on whatever their tokens are, unless these end them. So the step after such a one can be planned
//! before its tokens are known, and begun. Its work for a sequence that has ended, or pauses, counts for nothing then: nobody has
//! seen it, and a block that it wrote to is another's only in a later step.

use super::{
    Scheduler, SequenceId,
    plan::{Plan, Work},
};
use crate::engine::{native::backend::BLOCK_TOKENS, seat_queue::Passed};

impl Scheduler {
    /// Plans the step after one that is underway, each work of which samples a token: the same sequences, but for those that
    /// the number of their tokens ends. `None` where another one is to be planned, as somebody is to be admitted, has to make
    /// room, or takes turns; and where nobody goes on. The tokens of its work are not known.
    pub(crate) fn plan_ahead(&mut self, underway: &Plan) -> Option<Plan> {
        if self.admits_next() || self.drafter.is_some() || self.cache.has_states() {
            return None;
        }
        let mut going: Vec<(SequenceId, usize)> = Vec::with_capacity(underway.work.len());
        let (mut met, mut blocks) = (0, 0);
        for work in &underway.work {
            let Some(sequence) = self.running.get(work.id) else { continue };
            let next = work.first + work.token_ids.len();
            if sequence.token_ids.len() != next {
                return None;
            }
            met += 1;
            // The token that is underway is the last one.
            if next + 1 >= sequence.longest {
                continue;
            }
            blocks += (next + 1).div_ceil(BLOCK_TOKENS).saturating_sub(sequence.blocks.len());
            going.push((work.id, next));
        }
        if met < self.running.len() || going.is_empty() || blocks > self.cache.blocks.available() {
            return None;
        }
        self.begin_plan();
        Some(Plan {
            work: going.into_iter().filter_map(|(id, next)| self.work_ahead(id, next)).collect(),
            ..Plan::default()
        })
    }

    /// Whether another step could admit somebody: to a seat that is free, or to one that is owed.
    fn admits_next(&self) -> bool {
        let Some((next, _)) = self.waiting.next(&Passed::default()) else { return false };
        self.running.len() < self.bounds.max_num_seqs || self.waiting.owing(next).is_some()
    }

    /// The work of a sequence for the token at this index, for which there is a block.
    fn work_ahead(&mut self, id: SequenceId, next: usize) -> Option<Work> {
        let sequence = self.running.get_mut(id)?;
        while sequence.blocks.len() * BLOCK_TOKENS <= next {
            sequence.blocks.push(self.cache.blocks.take()?);
        }
        sequence.step = self.step;
        Some(Work {
            id,
            first: next,
            token_ids: vec![0],
            blocks: sequence.blocks[..=next / BLOCK_TOKENS].to_vec(),
            slot: 0,
            adapter: sequence.adapter_slot,
            snapshots: Vec::new(),
            scores: Vec::new(),
            samples: true,
            images: None,
            drafts: 0,
        })
    }

    /// Leaves out of a plan, all of which was computed, what counts for nothing: the work of sequences that have ended meanwhile, or
    /// pause. Answers which work stays, by its place.
    pub(crate) fn retain_running(&self, plan: &mut Plan) -> Vec<bool> {
        let stays: Vec<bool> = plan.work.iter().map(|work| self.running.get(work.id).is_some()).collect();
        let mut each = stays.iter();
        plan.work.retain(|_| each.next().is_some_and(|stays| *stays));
        stays
    }
}
