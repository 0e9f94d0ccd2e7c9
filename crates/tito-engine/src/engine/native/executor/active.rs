//! A sequence that is being generated, as its reader has it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::scoring::Scoring;
use crate::{
    engine::{Adapter, EngineOutput, GivenRoutes, WeightsInUse, backlog::Sender as Outputs},
    sampling::SequenceSampler,
};

/// A sequence that is being generated.
pub(super) struct Active {
    /// Used by the thread that has the sequence's logits, or by the one that prepares its next position.
    pub(super) sampler: Arc<Mutex<SequenceSampler>>,
    /// Whether its next position is being prepared; it pauses meanwhile.
    pub(super) preparing: bool,
    pub(super) outputs: Outputs,
    pub(super) prompt_tokens: usize,
    /// How much of the prompt was cached when the sequence began to run.
    pub(super) cached_tokens: usize,
    pub(super) scoring: Option<Scoring>,
    pub(super) adapter: Option<Arc<Adapter>>,
    /// The routes that its prompt takes.
    pub(super) given: Option<Arc<GivenRoutes>>,
    /// The position of the first token whose routes were not reported, where they are asked for.
    pub(super) unrouted: Option<usize>,
    /// The weights that its reader was told of last.
    pub(super) told: Option<WeightsInUse>,
}

impl Active {
    /// How many tokens of the prompt were computed for a token that is its first one; 0 for all other tokens.
    pub(super) fn computed_first(&self) -> usize {
        if self.outputs.has_sampled() { 0 } else { self.prompt_tokens.saturating_sub(self.cached_tokens) }
    }

    /// Sends an output; `false` if nobody listens.
    pub(super) fn send(&self, output: EngineOutput) -> bool {
        self.outputs.send(Ok(output)).is_ok()
    }
}
