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
        drafts::{Asked, DraftSource, Drafter, Speculation},
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
    pub(super) fn draft(&mut self, plan: &mut Plan, budget: usize) {
        let Some(drafter) = &mut self.drafter else { return };
        let drafting = plan.work.iter().filter(|work| may_draft(work)).count();
        let mut step = Step {
            rows: plan.work.iter().map(|work| work.token_ids.len()).sum(),
            budget,
            drafting,
            is_learnt_from: drafting == plan.work.len(),
            asks_the_model: false,
        };
        if drafter.asks_a_model() {
            step.asks_the_model = step.takes(DraftSource::Model, drafter, plan);
        }
        let mut found = Vec::new();
        for (index, work) in plan.work.iter().enumerate().filter(|(_, work)| may_draft(work)) {
            if let Some(sequence) = self.running.get_mut(work.id) {
                found.push((index, step.find(sequence, drafter)));
            }
        }
        for source in [DraftSource::Forced, DraftSource::Texts] {
            let has = |(_, draft): &(usize, Draft)| draft.has(source);
            if found.iter().any(has) && !step.takes(source, drafter, plan) {
                for (_, draft) in &mut found {
                    draft.leave_out(source);
                }
            }
        }
        for (index, draft) in found {
            let work = &mut plan.work[index];
            if let Some(sequence) = self.running.get_mut(work.id) {
                put(sequence, work, [draft.forced, draft.from_texts].concat(), &mut self.cache);
            }
            if draft.wished > 0 {
                plan.wishes.push(DraftWish { id: work.id, most: draft.wished });
            }
        }
    }

    /// Adds a draft to a sequence for which the plan wishes one, after what it drafts already.
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

    /// Learns what a step took that had drafts from a source or had not, and how many tokens it gave.
    pub(crate) fn learn_gain(&mut self, asked: Asked, tokens: usize, took: Duration) {
        if let Some(drafter) = &mut self.drafter {
            drafter.learn_gain(asked, tokens, took);
        }
    }

    /// Learns how many tokens of a sequence's draft were what was sampled.
    pub(crate) fn drafted(&mut self, id: SequenceId, drafted: usize, accepted: usize) {
        let Some(sequence) = self.running.get_mut(id) else { return };
        let forced = sequence.forced.len().min(drafted);
        if forced > 0 {
            sequence.forced_confidence.learn(forced, accepted.min(forced));
        }
        // What comes after something wrong tells nothing.
        if drafted > forced && accepted >= forced {
            let (drafted, accepted) = (drafted - forced, accepted - forced);
            sequence.confidence.learn(drafted, accepted);
            if let Some(drafter) = &mut self.drafter {
                drafter.learn(drafted, accepted);
            }
        }
    }
}

/// A draft of a sequence, which a step may have.
#[derive(Debug, Default)]
struct Draft {
    /// What a structured output forces.
    forced: Vec<TokenId>,
    /// What comes after that by texts.
    from_texts: Vec<TokenId>,
    /// How many tokens of another model are wished after that.
    wished: usize,
}

impl Draft {
    fn len(&self) -> usize {
        self.forced.len() + self.from_texts.len() + self.wished
    }

    fn has(&self, source: DraftSource) -> bool {
        match source {
            DraftSource::Forced => !self.forced.is_empty(),
            DraftSource::Texts => !self.from_texts.is_empty(),
            DraftSource::Model => self.wished > 0,
        }
    }

    /// Leaves out what comes from a source, and what follows it.
    fn leave_out(&mut self, source: DraftSource) {
        match source {
            _ if !self.has(source) => {}
            DraftSource::Forced => *self = Self::default(),
            DraftSource::Texts => self.from_texts.clear(),
            DraftSource::Model => self.wished = 0,
        }
    }
}

/// What a step has for drafts.
struct Step {
    /// Its rows with the drafts so far.
    rows: usize,
    /// The tokens that it has left.
    budget: usize,
    /// How many sequences may have drafts.
    drafting: usize,
    /// Whether the time that it takes says something of drafts.
    is_learnt_from: bool,
    /// Whether another model is asked.
    asks_the_model: bool,
}

impl Step {
    /// Whether it has drafts from a source that it could have them from. The plan says so where that is learnt from.
    fn takes(&self, source: DraftSource, drafter: &mut Drafter, plan: &mut Plan) -> bool {
        let drafts = drafter.should_ask(source, self.drafting, self.is_learnt_from);
        if self.is_learnt_from {
            plan.asked.push(Asked { source, sequences: self.drafting, drafts });
        }
        drafts
    }

    /// What may be drafted for a sequence: what is forced, and then what somebody guesses to follow.
    fn find(&mut self, sequence: &mut Sequence, drafter: &mut Drafter) -> Draft {
        // The last token is sampled, not computed.
        let left = sequence.longest.saturating_sub(sequence.token_ids.len() + 1);
        let most = left.min(self.budget).min(drafter.longest_draft());
        let mut draft = Draft::default();
        if !sequence.forced.is_empty() {
            let worth = sequence.forced_confidence.worth(self.rows, most);
            draft.forced.extend(sequence.forced.iter().take(worth));
            if worth == 0 {
                sequence.forced_confidence.forget();
            }
        }
        self.rows += draft.forced.len();
        if draft.forced.len() == sequence.forced.len() {
            self.guess(sequence, drafter, most - draft.forced.len(), &mut draft);
        }
        self.rows += draft.len() - draft.forced.len();
        self.budget -= draft.len();
        draft
    }

    /// Adds at most so many tokens that somebody guesses.
    fn guess(&self, sequence: &mut Sequence, drafter: &mut Drafter, most: usize, draft: &mut Draft) {
        let by_model = drafter.asks_a_model();
        if by_model && (!self.asks_the_model || sequence.images.is_some()) {
            return;
        }
        let confidence = &mut sequence.confidence;
        let worth = if by_model {
            drafter.worth_of_model(*confidence, most, self.rows, self.drafting)
        } else {
            confidence.worth(self.rows, most)
        };
        if by_model {
            draft.wished = worth;
        } else if worth > 0 {
            let sampled = sequence.token_ids.len();
            sequence.token_ids.extend(&draft.forced);
            draft.from_texts = drafter.draft(sequence.draft_context(), worth, self.rows);
            sequence.token_ids.truncate(sampled);
        }
        if worth == 0 && draft.forced.is_empty() {
            sequence.confidence.forget();
            if by_model {
                drafter.forget();
            }
        }
    }
}

/// Whether a sequence samples from a single row.
fn may_draft(work: &Work) -> bool {
    work.samples && work.token_ids.len() == 1 && work.scores.is_empty()
}

/// Adds a draft, as far as the sequence has blocks for it or there are some that hold nothing.
fn put(sequence: &mut Sequence, work: &mut Work, mut drafts: Vec<TokenId>, cache: &mut Cache) {
    let computed = sequence.computed + 1 + work.drafts;
    while sequence.blocks.len() * BLOCK_TOKENS < computed + drafts.len()
        && let Some(block) = cache.blocks.take_free()
    {
        sequence.blocks.push(block);
    }
    drafts.truncate(sequence.blocks.len() * BLOCK_TOKENS - computed);
    work.blocks = sequence.blocks[..(computed + drafts.len()).div_ceil(BLOCK_TOKENS)].to_vec();
    work.drafts += drafts.len();
    work.token_ids.extend(drafts);
}
