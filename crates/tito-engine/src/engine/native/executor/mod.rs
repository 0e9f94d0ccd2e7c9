//! The thread that owns the model: takes commands, plans, computes, samples, and hands tokens on.

mod active;
mod adapters;
mod command;
mod conclusion;
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
    scheduler::{NewSequence, Plan, SequenceId},
};
use crate::{
    engine::{EngineError, EngineOutput, FinishReason, PromptOutput, SequenceRequest, backlog::Sender as Outputs},
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
        self.end_turn(false);
        true
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
}
