//! A feed-forward part, which an expert is too.

use super::shape::DenseShape;
use crate::engine::native::backend::{Backend, Gate, NoRoom};

/// A feed-forward part, or one expert.
pub(super) struct Dense<B: Backend> {
    intermediate: usize,
    gate: Gate,
    pub(super) gate_up: B::Matrix,
    pub(super) gate_up_bias: Option<B::Vector>,
    pub(super) down: B::Matrix,
    pub(super) down_bias: Option<B::Vector>,
}

impl<B: Backend> Dense<B> {
    pub(super) fn zeros(backend: &B, hidden: usize, shape: DenseShape) -> Result<Self, NoRoom> {
        let DenseShape { intermediate, bias, gate } = shape;
        let inner = shape.inner_width();
        let vector = |len| bias.then(|| backend.vector(len)).transpose();
        Ok(Self {
            intermediate,
            gate,
            gate_up: backend.matrix(inner, hidden)?,
            gate_up_bias: vector(inner)?,
            down: backend.matrix(hidden, intermediate)?,
            down_bias: vector(hidden)?,
        })
    }

    /// The part before the way back, into `gated`; gates have a factor.
    pub(super) fn gate(
        &self,
        backend: &mut B,
        (input, factor): (&B::Operand, f32),
        wide: &mut B::States,
        gated: &mut B::Operand,
    ) {
        backend.linear(input, &self.gate_up, self.gate_up_bias.as_ref(), wide);
        backend.scale(wide, 0..self.intermediate, factor);
        backend.gate(wide, self.gate, self.intermediate, gated);
    }
}
