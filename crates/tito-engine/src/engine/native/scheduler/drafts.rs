//! Drafts that go with the last sampled token of a sequence, where a step has rows to spare.
//!
//! They take what nobody else wants: tokens that the step has left, and blocks that hold nothing. A sequence counts them as
//! computed only once they were sampled.

use super::{Scheduler, SequenceId, plan::Plan};
use crate::engine::native::{
    backend::BLOCK_TOKENS,
    drafts::{Drafter, Speculation},
};

impl Scheduler {
    /// The same, which drafts for sequences that decode. Not for models with recurrent states, in which there is no going
    /// back.
    pub(crate) fn speculating(self, speculation: Option<Speculation>) -> Self {
        debug_assert!(speculation.is_none() || !self.cache.has_states(), "checked before");
        Self { drafter: speculation.map(Drafter::new), ..self }
    }

    /// The most tokens of a draft, where there are any.
    pub(crate) fn longest_draft(&self) -> Option<usize> {
        self.drafter.as_ref().map(Drafter::longest_draft)
    }

    /// Adds drafts to the sequences of a plan that sample from a single row.
    pub(super) fn draft(&mut self, plan: &mut Plan, budget: &mut usize) {
        let Some(drafter) = &mut self.drafter else { return };
        let mut rows: usize = plan.work.iter().map(|work| work.token_ids.len()).sum();
        for work in &mut plan.work {
            let Some(sequence) = self.running.get_mut(work.id) else { continue };
            if !work.samples || work.token_ids.len() > 1 || !work.scores.is_empty() {
                continue;
            }
            // The last token is sampled, not computed.
            let left = sequence.longest.saturating_sub(sequence.token_ids.len() + 1);
            let most = left.min(*budget).min(drafter.longest_draft());
            let confidence = sequence.draft_confidence();
            let worth = confidence.worth(rows, most);
            if worth == 0 {
                confidence.forget();
                continue;
            }
            let mut drafts = if sequence.forced.is_empty() {
                drafter.draft(sequence.draft_context(), worth, rows)
            } else {
                sequence.forced.iter().take(worth).copied().collect()
            };
            let computed = sequence.computed + 1;
            while sequence.blocks.len() * BLOCK_TOKENS < computed + drafts.len()
                && let Some(block) = self.cache.blocks.take_free()
            {
                sequence.blocks.push(block);
            }
            drafts.truncate(sequence.blocks.len() * BLOCK_TOKENS - computed);
            work.drafts = drafts.len();
            work.token_ids.extend(drafts);
            work.blocks = sequence.blocks[..(computed + work.drafts).div_ceil(BLOCK_TOKENS)].to_vec();
            *budget -= work.drafts;
            rows += work.drafts;
        }
    }

    /// Learns how many tokens of a sequence's draft were what was sampled.
    pub(crate) fn drafted(&mut self, id: SequenceId, drafted: usize, accepted: usize) {
        if let Some(sequence) = self.running.get_mut(id) {
            sequence.draft_confidence().learn(drafted, accepted);
        }
    }
}
