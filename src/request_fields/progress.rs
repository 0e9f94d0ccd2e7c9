//! What a stream has told of one choice so far.

use crate::{
    engine::Routes,
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
}

impl Progress {
    /// Counts a delta, and takes its routes.
    pub(crate) fn push(&mut self, delta: &mut Delta) {
        self.sampled += delta.tokens.len();
        self.thought += delta.reasoning_tokens;
        self.weights.push(delta);
        Routes::join(&mut self.routes, delta.routes.take());
    }
}
