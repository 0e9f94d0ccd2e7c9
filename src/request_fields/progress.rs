//! What a stream has told of one choice so far.

use crate::{
    engine::{RequestTimes, Routes},
    generation::{Delta, WeightSpans},
};

/// The progress of one choice of a stream.
#[derive(Clone, Default)]
pub(crate) struct Progress {
    /// The number of tokens.
    pub(crate) sampled: usize,
    /// The number of these that are reasoning.
    pub(crate) thought: usize,
    /// The weights that sampled them.
    pub(crate) weights: WeightSpans,
    /// The experts that they went through.
    pub(crate) routes: Option<Routes>,
    /// How long the sequence was in each phase up to the last of them, where that is shown.
    pub(crate) times: Option<RequestTimes>,
}

impl Progress {
    /// Counts a delta, and takes its routes.
    pub(crate) fn push(&mut self, delta: &mut Delta) {
        self.sampled += delta.tokens.len();
        self.thought += delta.reasoning_tokens;
        self.weights.push(delta);
        self.times = delta.times.or(self.times);
        Routes::join(&mut self.routes, delta.routes.take());
    }
}
