//! The thread that owns the model: takes commands, plans, computes, samples, and hands tokens on.

mod active;
mod adapters;
mod command;
mod control;
mod controlled;
mod drafts;
mod names;
mod routes;
mod rows;
mod scoring;
mod standing;
mod state;
mod steps;
mod tally;
mod underway;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use self::{
    active::Active,
    rows::{LogitsRow, RowUse},
    scoring::Scoring,
    underway::Underway,
};
pub(super) use self::{
    command::{Command, Entry},
    controlled::Controlled,
    state::Executor,
};
use super::{
    backend::{Backend, Batch},
    images::SequenceImages,
    jobs::{Chain, Job, Jobs, Made},
    scheduler::{NewSequence, Plan, SequenceId, Work},
};
use crate::{
    engine::{
        EngineError, EngineLoad, EngineOutput, FinishReason, PromptOutput, SequenceRequest, backlog::Sender as Outputs,
    },
    files::panic_text,
    sampling::{SampleError, SequenceSampler},
};
use parking_lot::Mutex;

impl<B: Backend> Executor<B> {
    /// Works until it is told to stop.
    pub(super) fn run(mut self) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            self.model.enter_thread();
            let mut underway = None;
            while self.turn(&mut underway) {}
        }));
        let end = match outcome {
            Ok(()) => Ok(EngineOutput::Finished(FinishReason::Abort)),
            Err(panic) => Err(EngineError::Failed(format!("the engine's thread panicked: {}", panic_text(&*panic)))),
        };
        self.status.close(end.as_ref().err().cloned());
        for active in std::mem::take(&mut self.active).into_values() {
            let _ = active.outputs.send(end.clone());
        }
        // Sequences that were sent but not read yet end too.
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Start { outputs, .. } = command {
                let _ = outputs.send(end.clone());
            }
        }
        self.status.idle();
    }

    /// Reads commands and computes a step, or begins one; `false` once it is time to end. Commands are obeyed between two steps:
    /// what is underway is taken before.
    fn turn(&mut self, underway: &mut Option<Underway<B>>) -> bool {
        if underway.is_none() && (self.scheduler.is_idle() || self.stands_still()) {
            // Nothing to compute: sleeps until something comes, or goes on.
            let Ok(command) = self.commands.recv() else { return false };
            if !self.obey(command) {
                return false;
            }
        }
        while let Ok(command) = self.commands.try_recv() {
            if let Some(step) = underway.take() {
                self.take(step);
            }
            if !self.obey(command) {
                return false;
            }
        }
        if let Some(step) = underway.take() {
            *underway = self.go_ahead(step);
            return true;
        }
        if self.stands_still() {
            return true;
        }
        let began = Instant::now();
        let mut plan = self.scheduler.plan();
        (0..plan.preempted + plan.reclaimed).for_each(|_| self.meters.preempted());
        self.admit(&plan);
        self.put_adapters(&mut plan);
        self.guide_drafts(&mut plan);
        self.put_drafts(&mut plan);
        let computes = !plan.work.is_empty();
        if computes {
            if let Some(draws) = self.draws_underway(&plan) {
                *underway = Some(self.begin(plan, (None, &draws), began));
                return true;
            }
            self.compute(&plan, began);
        }
        self.end_turn(computes);
        true
    }

    /// Says what the engine is like after a step, or after none.
    fn end_turn(&mut self, computed: bool) {
        self.empty_slots();
        self.publish_load();
        self.scheduler.tell();
        // Whoever waits for the step sees what the engine is like after it.
        if computed {
            self.steps.computed();
        }
    }

    fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::Start { entry, request, outputs } => self.start(entry, request, outputs),
            Command::Abort(id) => self.end(id),
            Command::Resume(id) => self.resume(id),
            Command::Prepared(id) => {
                if let Some(active) = self.active.get_mut(&id) {
                    active.preparing = false;
                    self.resume(id);
                }
            }
            Command::Control(call) => call(self),
            Command::Stop => return false,
        }
        self.empty_slots();
        self.publish_load();
        self.scheduler.tell();
        true
    }

    fn publish_load(&self) {
        let (running, waiting) = self.scheduler.load();
        let (paused, kv_cache_usage) = (self.scheduler.paused(), self.scheduler.usage());
        self.status.set_load(EngineLoad { running, waiting, paused, kv_cache_usage });
        if self.scheduler.serves_adapters() {
            self.status.set_adapters(self.scheduler.adapter_load());
        }
    }

    fn start(&mut self, entry: Entry, request: SequenceRequest, outputs: Outputs) {
        let Entry { id, claimant } = entry;
        let SequenceRequest {
            prompt_token_ids: prompt,
            sampling,
            prompt_logprobs,
            candidates,
            cache_salt,
            adapter,
            routing,
            images,
            // The sender of the outputs knows.
            timed: _,
        } = request;
        let sampler = SequenceSampler::new(Arc::clone(&sampling), Arc::clone(&prompt));
        let drafts = self.scheduler.longest_draft().is_some();
        let sampler = if drafts { sampler.foreseeing() } else { sampler };
        let scoring = Scoring::new(prompt.len(), prompt_logprobs, candidates);
        self.scheduler.add(NewSequence {
            id,
            claimant,
            prompt_token_ids: prompt.to_vec(),
            max_tokens: sampling.max_tokens,
            // What is computed with given routes is of no use to others.
            salt: match &routing.given {
                Some(given) => Some(given.salt(cache_salt.as_deref())),
                None => cache_salt,
            },
            adapter: adapter.clone(),
            images: SequenceImages::attending(&images, self.model.sees_images_both_ways()),
            scores_from: scoring.as_ref().map(Scoring::first),
        });
        self.active.insert(
            id,
            Active {
                prompt_tokens: prompt.len(),
                cached_tokens: 0,
                sampler: Arc::new(Mutex::new(sampler)),
                preparing: false,
                outputs,
                scoring,
                adapter,
                given: routing.given,
                unrouted: routing.shown_from,
                told: None,
            },
        );
    }

    /// Has a sequence go on that pauses, unless there is still a reason to pause.
    fn resume(&mut self, id: SequenceId) {
        if self.active.get(&id).is_some_and(|active| !active.preparing && !active.outputs.pauses()) {
            self.scheduler.resume(id);
        }
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

    /// Tells the sequences that run for the first time what was cached of them.
    fn admit(&mut self, plan: &Plan) {
        for (id, cached_tokens) in &plan.admitted {
            let Some(active) = self.active.get_mut(id) else { continue };
            active.outputs.scheduled();
            active.cached_tokens = *cached_tokens;
            self.meters.prefix_cache(active.prompt_tokens, *cached_tokens);
            let output = PromptOutput { cached_tokens: *cached_tokens, ..PromptOutput::default() };
            match &mut active.scoring {
                Some(scoring) => scoring.note_cached_tokens(*cached_tokens),
                // If nobody listens, that is noticed with the first token.
                None => _ = active.send(EngineOutput::Prompt(output)),
            }
        }
    }

    fn compute(&mut self, plan: &Plan, began: Instant) {
        self.model.copy_blocks(&plan.copies);
        self.model.copy_slots(&plan.restores);
        if let Some(routes) = &mut self.routes {
            routes.copy_blocks(&plan.copies);
        }
        let (batch, places) = rows::batch(plan);
        routes::begin(&mut self.model, self.routes.as_ref(), plan, |id| self.active.get(id));
        let (made, finite) = self.forward(plan, &batch, &places);
        routes::end(&mut self.model, self.routes.as_mut(), plan);
        self.conclude(plan, (places, made), &finite, began);
    }

    /// Hands on what was made of a step's rows, and takes note of it.
    fn conclude(
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

    /// Computes the logits of a batch and what is to be made of each row; and for each sequence whether what is cached
    /// of it is finite.
    fn forward(
        &mut self,
        plan: &Plan,
        batch: &Batch,
        places: &[LogitsRow],
    ) -> (Vec<Result<Made, SampleError>>, Vec<bool>) {
        let Self { model, active, .. } = self;
        let mut last: Option<(usize, Arc<Chain<'_>>)> = None;
        let jobs = places.iter().map(|(number, of)| {
            let work = &plan.work[*number];
            let active = &active[&work.id];
            match (of, &active.scoring) {
                (RowUse::Score { position, token }, Some(scoring)) => scoring.job(*position, *token),
                (RowUse::Sample { draft: row }, _) if work.drafts > 0 => {
                    let begun = last.take().filter(|(of, _)| of == number).map(|(_, chain)| chain);
                    let chain = begun.unwrap_or_else(|| Arc::new(Chain::new(&active.sampler, work.draft())));
                    last = Some((*number, Arc::clone(&chain)));
                    Job::Verify { chain, row: *row }
                }
                _ => Job::Sample(&active.sampler),
            }
        });
        let jobs = Jobs::new(jobs);
        let finite = model.forward(batch, &jobs);
        (jobs.made(), finite)
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
}
