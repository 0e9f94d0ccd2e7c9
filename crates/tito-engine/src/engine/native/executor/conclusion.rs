//! What becomes of a step: its tokens are handed on, its sequences go on or end, and its blocks can be shared.

use std::time::Instant;

use super::{
    command::Command,
    rows::{LogitsRow, RowUse},
    state::Executor,
};
use crate::{
    engine::{
        EngineLoad, EngineOutput,
        native::{
            backend::Backend,
            jobs::Made,
            scheduler::{Plan, SequenceId, Work},
        },
    },
    sampling::SampleError,
};

impl<B: Backend> Executor<B> {
    /// Hands on what was made of a step's rows, and takes note of it.
    pub(super) fn conclude(
        &mut self,
        plan: &Plan,
        (places, made): (Vec<LogitsRow>, Vec<Result<Made, SampleError>>),
        finite: &[bool],
        began: Instant,
    ) {
        self.note_time(plan, &made, began);
        let mut ended = self.end_broken(plan, finite);
        self.scheduler.commit(plan);
        self.take_note(plan, &places, &made);
        self.tally(plan, &places, &made);
        for ((work, of), made) in places.into_iter().zip(made) {
            let work = &plan.work[work];
            let id = work.id;
            // A sequence that ended in this step made its last output.
            if ended.contains(&id) {
                continue;
            }
            if let (RowUse::Sample { draft }, false) = (of, matches!(made, Ok(Made::Rejected))) {
                self.report_routes(work, draft);
            }
            if !self.hand_on(id, of, made) {
                ended.push(id);
                self.end(id);
            } else if of == (RowUse::Sample { draft: work.drafts }) {
                self.pause(id);
            }
        }
    }

    /// Ends sequences whose keys or values are not finite, before their blocks and states are shared; their logits, soon
    /// or late, would not be numbers.
    fn end_broken(&mut self, plan: &Plan, finite: &[bool]) -> Vec<SequenceId> {
        let broken = plan.work.iter().zip(finite).filter(|(_, finite)| !**finite);
        let broken: Vec<SequenceId> = broken.map(|(work, _)| work.id).collect();
        for id in &broken {
            if let Some(active) = self.active.get(id) {
                let _ = active.outputs.send(Err(SampleError::NonFiniteLogits.into()));
            }
            self.end(*id);
        }
        broken
    }

    /// Takes a sequence out of the steps while its client does not read, or while its next position takes long.
    fn pause(&mut self, id: SequenceId) {
        let Some(active) = self.active.get_mut(&id) else { return };
        active.preparing = active.sampler.lock().is_slow();
        if active.preparing {
            let own = self.own.clone();
            // A thread that is gone does not wait.
            self.aside.prepare(&active.sampler, move || _ = own.send(Command::Prepared(id)));
        }
        if active.outputs.pauses() || active.preparing {
            self.scheduler.pause(id);
        }
    }

    /// Reports the routes of a sequence that samples a token now, after so many tokens of its draft, as far as it
    /// computed any since the last one.
    fn report_routes(&mut self, work: &Work, draft: usize) {
        let (Some(active), Some(routes)) = (self.active.get_mut(&work.id), &self.routes) else { return };
        let Some(unrouted) = &mut active.unrouted else { return };
        let computed = work.first + work.token_ids.len() - work.drafts + draft;
        let first = std::mem::replace(unrouted, computed);
        // If nobody listens, that is noticed with the token.
        active.send(EngineOutput::Routes(routes.read(&work.blocks, first..computed)));
    }

    /// Hands on what a row gave; `false` if the sequence ends.
    fn hand_on(&mut self, id: SequenceId, of: RowUse, made: Result<Made, SampleError>) -> bool {
        let untold = self.untold_weights(id);
        let Some(active) = self.active.get_mut(&id) else { return false };
        match (made, of) {
            (Ok(Made::Rejected), _) => true,
            (Err(error), _) => {
                let _ = active.outputs.send(Err(error.into()));
                false
            }
            (Ok(Made::Score(score)), RowUse::Score { position, .. }) => {
                if let Some(scoring) = &mut active.scoring {
                    scoring.take(position, score);
                }
                true
            }
            (Ok(Made::Step(step)), _) => {
                let token = step.token.id;
                if let Some(mut scoring) = active.scoring.take() {
                    active.send(EngineOutput::Prompt(scoring.finish()));
                }
                if let Some(in_use) = untold {
                    active.told = Some(in_use.clone());
                    // If nobody listens, that is noticed with the token.
                    active.send(EngineOutput::Weights(in_use));
                }
                if !active.send(EngineOutput::Token(step.token)) {
                    return false;
                }
                if let Some(reason) = step.finish {
                    // Counted first: who has read the end may look.
                    if let Some(active) = self.ended(id) {
                        active.send(EngineOutput::Finished(reason));
                    }
                    return false;
                }
                self.scheduler.push(id, token, step.forced);
                true
            }
            (Ok(Made::Score(_)), RowUse::Sample { .. }) => unreachable!("only a score has a place in the prompt"),
        }
    }

    /// Says what the engine is like after a step, or after something else.
    pub(super) fn end_turn(&mut self, computed: bool) {
        self.empty_slots();
        self.publish_load();
        self.scheduler.tell();
        // Whoever waits for the step sees what the engine is like after it.
        if computed {
            self.steps.computed();
        }
    }

    fn publish_load(&self) {
        let (running, waiting) = self.scheduler.load();
        let (paused, kv_cache_usage) = (self.scheduler.paused(), self.scheduler.usage());
        self.status.set_load(EngineLoad { running, waiting, paused, kv_cache_usage });
        if self.scheduler.serves_adapters() {
            self.status.set_adapters(self.scheduler.adapter_load());
        }
    }
}
