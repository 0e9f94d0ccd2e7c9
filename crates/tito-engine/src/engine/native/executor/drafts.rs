//! What became of drafts.

use super::{
    rows::{LogitsRow, RowUse},
    state::Executor,
};
use crate::{
    engine::native::{backend::Backend, jobs::Made, scheduler::Plan},
    sampling::SampleError,
};

impl<B: Backend> Executor<B> {
    /// Takes note of how many tokens of each draft were what was sampled.
    pub(super) fn take_note(&mut self, plan: &Plan, places: &[LogitsRow], made: &[Result<Made, SampleError>]) {
        if plan.work.iter().all(|work| work.drafts == 0) {
            return;
        }
        let mut sampled = vec![0_usize; plan.work.len()];
        for ((work, of), made) in places.iter().zip(made) {
            let is_sampled = matches!((of, made), (RowUse::Sample { .. }, Ok(Made::Step(_))));
            sampled[*work] += usize::from(is_sampled);
        }
        for (work, sampled) in plan.work.iter().zip(sampled).filter(|(work, _)| work.drafts > 0) {
            // The last one is the model's own.
            let accepted = sampled.saturating_sub(1);
            self.scheduler.drafted(work.id, work.drafts, accepted);
            if let Some(meters) = &self.draft_meters {
                meters.drafted(work.drafts, accepted);
            }
        }
    }
}
