//! Steps that the device computes while their tokens are not known yet.
//!
//! A device is idle while the host takes the tokens of a step, hands them on and plans the next one. So where sequences only
//! decode, and the device draws their tokens, the next step is begun before the tokens of the one before are on the host: it takes
//! them from where the device wrote them. What is obeyed between two steps waits until the step underway has been taken: then
//! everything is as after a step that was waited for.

use std::time::Instant;

use super::{
    rows::{self, RowUse},
    state::Executor,
};
use crate::{
    engine::native::{
        backend::Backend,
        jobs::Made,
        scheduler::{Plan, Work},
    },
    sampling::{DeviceDraw, Drawn, SampleError},
};

/// A step whose tokens are not on the host yet.
pub(super) struct Underway<B: Backend> {
    /// Each work of it samples one token, and has one row of logits.
    plan: Plan,
    step: B::Underway,
    began: Instant,
}

impl<B: Backend> Executor<B> {
    /// Begins the step after the one underway, if its plan does not depend on the tokens, and takes these; `None` if there is no
    /// such step, and the tokens were taken.
    pub(super) fn go_ahead(&mut self, before: Underway<B>) -> Option<Underway<B>> {
        let began = Instant::now();
        let next = self.plan_ahead(&before).map(|(plan, after, draws)| self.begin(plan, (Some(&after), &draws), began));
        self.take(before);
        next
    }

    /// Takes the tokens of a step.
    pub(super) fn take(&mut self, underway: Underway<B>) {
        let Underway { mut plan, step, began } = underway;
        let (drawn, finite) = self.model.land(step);
        // Sequences may have ended meanwhile.
        let stays = self.scheduler.retain_running(&mut plan);
        let drawn = drawn.into_iter().zip(&stays).filter_map(|(drawn, stays)| stays.then_some(drawn));
        let made = |(drawn, work): (Drawn, &Work)| {
            let mut sampler = self.active[&work.id].sampler.lock();
            sampler.take_drawn(drawn).map(Made::Step).ok_or(SampleError::NonFiniteLogits)
        };
        let made: Vec<Result<Made, SampleError>> = drawn.zip(&plan.work).map(made).collect();
        let places = (0..plan.work.len()).map(|work| (work, RowUse::Sample { draft: 0 })).collect();
        let finite: Vec<bool> =
            finite.into_iter().zip(stays).filter_map(|(finite, stays)| stays.then_some(finite)).collect();
        self.conclude(&plan, (places, made), &finite, began);
        self.end_turn(true);
    }

    /// How a step draws its tokens, if it may be begun without waiting for them.
    pub(super) fn draws_underway(&self, plan: &Plan) -> Option<Vec<DeviceDraw>> {
        let is_plain = |work: &Work| {
            let has_more = work.drafts > 0 || work.images.is_some() || work.adapter.is_some();
            work.samples && !has_more && work.scores.is_empty() && work.snapshots.is_empty()
        };
        let waits = self.routes.is_some() || self.steps.are_held() || !self.model.goes_ahead();
        if waits || self.scheduler.longest_draft().is_some() || !plan.work.iter().all(is_plain) {
            return None;
        }
        self.draws_after(plan, 0)
    }

    /// The next step and its draws, if it can be planned before the tokens of the one underway are known; and for each of its rows
    /// which row of logits of that step draws its token.
    fn plan_ahead(&mut self, before: &Underway<B>) -> Option<(Plan, Vec<usize>, Vec<DeviceDraw>)> {
        if self.steps.are_held() {
            return None;
        }
        let plan = self.scheduler.plan_ahead(&before.plan)?;
        let mut row = 0;
        let mut row_of = |work: &Work| {
            row += before.plan.work[row..].iter().position(|before| before.id == work.id)?;
            Some(row)
        };
        let after = plan.work.iter().map(&mut row_of).collect::<Option<Vec<usize>>>()?;
        let draws = self.draws_after(&plan, 1)?;
        Some((plan, after, draws))
    }

    /// How the device draws the token of each sequence that comes so many tokens after the next one.
    fn draws_after(&self, plan: &Plan, ahead: usize) -> Option<Vec<DeviceDraw>> {
        let draw = |work: &Work| {
            let active = self.active.get(&work.id).filter(|active| active.given.is_none())?;
            active.sampler.lock().device_draw_ahead(ahead)
        };
        plan.work.iter().map(draw).collect()
    }

    /// Begins a step.
    pub(super) fn begin(
        &mut self,
        plan: Plan,
        (after, draws): (Option<&[usize]>, &[DeviceDraw]),
        began: Instant,
    ) -> Underway<B> {
        self.model.copy_blocks(&plan.copies);
        let (batch, _) = rows::batch(&plan);
        let step = self.model.begin(&batch, after, draws);
        Underway { plan, step, began }
    }
}
