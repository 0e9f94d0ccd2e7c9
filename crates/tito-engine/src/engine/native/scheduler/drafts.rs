//! Drafts that go with the last sampled token of a sequence, where a step has rows to spare.
//!
//! They take what nobody else wants: tokens that the step has left, and blocks that hold nothing. A sequence counts them as
//! computed only once they were sampled.

use std::time::Duration;

use super::{
    Scheduler, SequenceId,
    cache::Cache,
    plan::{DraftWish, Plan, Work},
    sequence::Sequence,
};
use crate::{
    TokenId,
    engine::native::{
        backend::BLOCK_TOKENS,
        drafts::{Asked, Drafter, Speculation},
    },
};

impl Scheduler {
    /// The same, which drafts for sequences that decode. Not for models with recurrent states, in which there is no going
    /// back. `cost` is what was measured of another model that drafts.
    pub(crate) fn speculating(self, speculation: Option<Speculation>, cost: Option<f64>) -> Self {
        debug_assert!(speculation.is_none() || !self.cache.has_states(), "checked before");
        Self { drafter: speculation.map(|speculation| Drafter::new(speculation, cost)), ..self }
    }

    /// The most tokens of a draft, where there are any.
    pub(crate) fn longest_draft(&self) -> Option<usize> {
        self.drafter.as_ref().map(Drafter::longest_draft)
    }

    /// Adds drafts to the sequences of a plan that sample from a single row.
    pub(super) fn draft(&mut self, plan: &mut Plan, budget: &mut usize) {
        let Some(drafter) = &mut self.drafter else { return };
        let mut rows: usize = plan.work.iter().map(|work| work.token_ids.len()).sum();
        let drafting = plan.work.iter().filter(|work| may_draft(work)).count();
        let asks_a_model = drafter.asks_a_model();
        let drafts = !asks_a_model || drafter.should_ask(drafting);
        if asks_a_model && drafting == plan.work.len() {
            plan.asked = Some(Asked { sequences: drafting, drafts });
        }
        for work in &mut plan.work {
            let Some(sequence) = self.running.get_mut(work.id) else { continue };
            if !may_draft(work) {
                continue;
            }
            // The last token is sampled, not computed.
            let left = sequence.longest.saturating_sub(sequence.token_ids.len() + 1);
            let most = left.min(*budget).min(drafter.longest_draft());
            let by_model = asks_a_model && sequence.forced.is_empty();
            if by_model && (!drafts || sequence.images.is_some()) {
                continue;
            }
            let confidence = sequence.draft_confidence();
            let worth = if by_model {
                drafter.worth_of_model(*confidence, most, rows, drafting)
            } else {
                confidence.worth(rows, most)
            };
            if worth == 0 {
                confidence.forget();
                if by_model {
                    drafter.forget();
                }
                continue;
            }
            if by_model {
                plan.wishes.push(DraftWish { id: work.id, most: worth });
                *budget -= worth;
                rows += worth;
                continue;
            }
            let drafts = if sequence.forced.is_empty() {
                drafter.draft(sequence.draft_context(), worth, rows)
            } else {
                sequence.forced.iter().take(worth).copied().collect()
            };
            put(sequence, work, drafts, &mut self.cache);
            *budget -= work.drafts;
            rows += work.drafts;
        }
    }

    /// Adds a draft to a sequence for which the plan wishes one.
    pub(crate) fn put_draft(&mut self, plan: &mut Plan, id: SequenceId, drafts: Vec<TokenId>) {
        if let Some(sequence) = self.running.get_mut(id)
            && let Some(work) = plan.work.iter_mut().find(|work| work.id == id)
        {
            put(sequence, work, drafts, &mut self.cache);
        }
    }

    /// Prompt and output of a sequence that runs, and how much of it is its prompt.
    pub(crate) fn text_of(&self, id: SequenceId) -> Option<(&[TokenId], usize)> {
        self.running.get(id).map(|sequence| (&sequence.token_ids[..], sequence.prompt_len))
    }

    /// Whether a sequence holds blocks.
    pub(crate) fn holds_blocks(&self, id: SequenceId) -> bool {
        let paused = || self.paused.iter().find(|sequence| sequence.id == id);
        self.running.get(id).or_else(paused).is_some_and(|sequence| !sequence.blocks.is_empty())
    }

    /// Takes note that another model drafts with new weights.
    pub(crate) fn renew_drafter(&mut self) {
        let Some(drafter) = &mut self.drafter else { return };
        drafter.renew();
        let confidence = drafter.confidence();
        for sequence in self.waiting.iter_mut().chain(self.running.iter_mut()).chain(&mut self.paused) {
            sequence.confidence = confidence;
        }
    }

    /// Learns what a step took for which another model was asked for drafts or was not, and how many tokens it gave.
    pub(crate) fn learn_gain(&mut self, asked: Asked, tokens: usize, took: Duration) {
        if let Some(drafter) = &mut self.drafter {
            drafter.learn_gain(asked, tokens, took);
        }
    }

    /// Learns how many tokens of a sequence's draft were what was sampled.
    pub(crate) fn drafted(&mut self, id: SequenceId, drafted: usize, accepted: usize) {
        if let Some(sequence) = self.running.get_mut(id) {
            if let Some(drafter) = self.drafter.as_mut().filter(|_| sequence.forced.is_empty()) {
                drafter.learn(drafted, accepted);
            }
            sequence.draft_confidence().learn(drafted, accepted);
        }
    }
}

/// Whether a sequence samples from a single row.
fn may_draft(work: &Work) -> bool {
    work.samples && work.token_ids.len() == 1 && work.scores.is_empty()
}

/// Adds a draft, as far as the sequence has blocks for it or there are some that hold nothing.
fn put(sequence: &mut Sequence, work: &mut Work, mut drafts: Vec<TokenId>, cache: &mut Cache) {
    let computed = sequence.computed + 1;
    while sequence.blocks.len() * BLOCK_TOKENS < computed + drafts.len()
        && let Some(block) = cache.blocks.take_free()
    {
        sequence.blocks.push(block);
    }
    drafts.truncate(sequence.blocks.len() * BLOCK_TOKENS - computed);
    work.drafts = drafts.len();
    work.token_ids.extend(drafts);
    work.blocks = sequence.blocks[..(computed + work.drafts).div_ceil(BLOCK_TOKENS)].to_vec();
}
