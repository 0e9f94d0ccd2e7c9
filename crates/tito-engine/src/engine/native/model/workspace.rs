//! What a step computes with, layer by layer.

use super::{adapters::Adapters, routes::StepRoutes};
use crate::engine::native::backend::Backend;

/// Buffers of a step.
pub(super) struct Workspace<B: Backend> {
    /// The residual stream.
    pub(super) hidden: B::States,
    /// What is wider or narrower: queries, keys and values; gates and ups; scores of experts.
    pub(super) wide: B::States,
    /// What a part or an expert gives.
    pub(super) out: B::States,
    /// The sum of experts where it is not added to the residual stream at once; queries and values of all heads while
    /// they are made head by head.
    pub(super) sum: B::States,
    /// One head of these.
    pub(super) head: B::States,
    /// What all layers read of tokens besides their states.
    pub(super) inputs: B::States,
    pub(super) logits: B::States,
    pub(super) input: B::Operand,
    pub(super) picked: B::Operand,
    pub(super) attended: B::Operand,
    pub(super) gated: B::Operand,
    pub(super) adapters: Adapters<B>,
    pub(super) routes: StepRoutes,
}

impl<B: Backend> Workspace<B> {
    pub(super) fn new(backend: &B) -> Self {
        Self {
            hidden: B::States::default(),
            wide: B::States::default(),
            out: B::States::default(),
            sum: B::States::default(),
            head: B::States::default(),
            inputs: B::States::default(),
            logits: B::States::default(),
            input: backend.operand(),
            picked: backend.operand(),
            attended: backend.operand(),
            gated: backend.operand(),
            adapters: Adapters::new(backend),
            routes: StepRoutes::default(),
        }
    }
}
