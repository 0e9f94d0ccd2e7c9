//! Drafts of another model, and what became of all drafts.

use std::time::Instant;

use super::{
    rows::{LogitsRow, RowUse},
    state::Executor,
};
use crate::{
    TokenId,
    engine::native::{
        backend::Backend,
        draft_model::Ask,
        jobs::Made,
        scheduler::{DraftWish, Plan},
    },
    sampling::SampleError,
};

impl<B: Backend> Executor<B> {
    /// Has the drafts of a plan follow the structured outputs of their sequences: what these refuse is not computed.
    pub(super) fn guide_drafts(&self, plan: &mut Plan) {
        let vocab_size = self.model.shape().vocab_size;
        for work in plan.work.iter_mut().filter(|work| work.drafts > 0) {
            let Some(active) = self.active.get(&work.id) else { continue };
            if let Some(guided) = active.sampler.lock().guided(work.draft()) {
                work.redraft(&guided);
            }
            // A structured output may force a token that only the tokenizer knows.
            let known = work.draft().iter().take_while(|id| (**id as usize) < vocab_size).count();
            if known < work.drafts {
                let draft = work.draft()[..known].to_vec();
                work.redraft(&draft);
            }
        }
    }

    /// Has another model draft, where one does, for the sequences of a plan for which that is wished.
    pub(super) fn put_drafts(&mut self, plan: &mut Plan) {
        let Self { model, draft_model: Some(draft_model), scheduler, active, .. } = self else { return };
        draft_model.retain(|id| scheduler.holds_blocks(id));
        let wishes = std::mem::take(&mut plan.wishes);
        if wishes.is_empty() {
            return;
        }
        // The first token of a request does not wait for what is of use to others alone.
        let prefills = plan.work.iter().any(|work| work.token_ids.len() > 1 + work.drafts || !work.samples);
        let catches_up = !prefills && scheduler.load().1 == 0;
        let ask = |wish: &DraftWish| {
            let (token_ids, prompt_len) = scheduler.text_of(wish.id)?;
            let sampler = &active.get(&wish.id)?.sampler;
            let forced = plan.work.iter().find(|work| work.id == wish.id)?.draft();
            Some(Ask { id: wish.id, token_ids, prompt_len, forced, most: wish.most, sampler })
        };
        let asks: Vec<Ask<'_>> = wishes.iter().filter_map(ask).collect();
        let guesses = draft_model.guess(&asks, model, catches_up);
        for (id, drafts) in guesses.drafts {
            scheduler.put_draft(plan, id, drafts);
        }
        // That was for many steps, and says nothing of this one.
        if guesses.caught_up {
            plan.asked.clear();
        }
    }

    /// Takes note of what a step took until its tokens were sampled, where that decides whether there are drafts.
    pub(super) fn note_time(&mut self, plan: &Plan, made: &[Result<Made, SampleError>], began: Instant) {
        if plan.asked.is_empty() {
            return;
        }
        let took = began.elapsed();
        let tokens = made.iter().filter(|made| matches!(made, Ok(Made::Step(_)))).count();
        for asked in &plan.asked {
            self.scheduler.learn_gain(*asked, tokens, took);
        }
    }

    /// Takes note of how many tokens of each draft were what was sampled.
    pub(super) fn take_note(&mut self, plan: &Plan, places: &[LogitsRow], made: &[Result<Made, SampleError>]) {
        if plan.work.iter().all(|work| work.drafts == 0) {
            return;
        }
        let mut accepted = vec![0; plan.work.len()];
        for ((work, of), made) in places.iter().zip(made) {
            if let (RowUse::Sample { .. }, Ok(Made::Step(step))) = (of, made) {
                accepted[*work] += usize::from(is_accepted(plan.work[*work].draft(), accepted[*work], step.token.id));
            }
        }
        for (work, accepted) in plan.work.iter().zip(accepted).filter(|(work, _)| work.drafts > 0) {
            self.scheduler.drafted(work.id, work.drafts, accepted);
            if let Some(meters) = &self.draft_meters {
                meters.drafted(work.drafts, accepted);
            }
        }
    }
}

/// Whether a token that was sampled after so many accepted ones is the next one of the draft. One that ends its sequence counts
/// too.
fn is_accepted(draft: &[TokenId], accepted: usize, sampled: TokenId) -> bool {
    draft.get(accepted) == Some(&sampled)
}
