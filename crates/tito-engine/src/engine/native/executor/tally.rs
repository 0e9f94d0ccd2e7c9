//! What a step gave, as vLLM counts it: the tokens that were sampled and, with the first one of a sequence, those of its
//! prompt that were computed.

use std::collections::HashMap;

use super::{
    rows::{LogitsRow, RowUse},
    state::Executor,
};
use crate::{
    engine::native::{backend::Backend, jobs::Made, scheduler::Plan},
    sampling::SampleError,
};

impl<B: Backend> Executor<B> {
    /// Counts what a step gave, before anybody can have it.
    pub(super) fn tally(&self, plan: &Plan, places: &[LogitsRow], made: &[Result<Made, SampleError>]) {
        let mut sampled = HashMap::new();
        for ((work, of), made) in places.iter().zip(made) {
            if matches!((of, made), (RowUse::Sample { .. }, Ok(Made::Step(_)))) {
                *sampled.entry(plan.work[*work].id).or_insert(0) += 1;
            }
        }
        // Sequences that broke are there no more.
        let active = sampled.into_iter().filter_map(|(id, tokens)| Some((self.active.get(&id)?, tokens)));
        let tokens: usize = active.map(|(active, tokens)| active.computed_first() + tokens).sum();
        if tokens > 0 {
            self.meters.iteration(tokens);
        }
    }
}
