//! A feed-forward part, which an expert is too.

use super::{
    adapters::{Adapters, Weight},
    destinations::{InDense, InLayer},
    shape::DenseShape,
};
use crate::engine::native::{
    backend::{Backend, Gate, NoRoom, Xielu},
    routing::ExpertWeights,
};

/// A feed-forward part, or one expert.
pub(super) struct Dense<B: Backend> {
    intermediate: usize,
    gate: Gate,
    /// The four numbers of a gate that is learnt.
    pub(super) activation: Option<B::Vector>,
    pub(super) gate_up: Weight<B>,
    pub(super) gate_up_bias: Option<B::Vector>,
    pub(super) down: Weight<B>,
    pub(super) down_bias: Option<B::Vector>,
}

impl<B: Backend> Dense<B> {
    /// A part whose tensors are where `place` says.
    pub(super) fn zeros(
        backend: &B,
        place: impl Fn(InDense) -> InLayer,
        hidden: usize,
        shape: DenseShape,
    ) -> Result<Self, NoRoom> {
        let DenseShape { intermediate, bias, gate } = shape;
        let inner = shape.inner_width();
        let vector = |len| bias.then(|| backend.vector(len)).transpose();
        Ok(Self {
            intermediate,
            gate,
            activation: matches!(gate, Gate::Xielu(_)).then(|| backend.vector(4)).transpose()?,
            gate_up: Weight::zeros(backend, place(InDense::GateUp(0)), inner, hidden)?,
            gate_up_bias: vector(inner)?,
            down: Weight::zeros(backend, place(InDense::Down), hidden, intermediate)?,
            down_bias: vector(hidden)?,
        })
    }

    /// Whether its gate is one of those that follow from the shape, and that backends have for themselves.
    pub(super) fn follows_from_shape(&self) -> bool {
        self.activation.is_none() && !matches!(self.gate, Gate::GeluTanhAlone)
    }

    /// What an expert has learnt.
    pub(super) fn weights(&self) -> ExpertWeights<'_, B::Matrix, B::Vector> {
        ExpertWeights {
            gate_up: &self.gate_up.matrix,
            gate_up_bias: self.gate_up_bias.as_ref(),
            down: &self.down.matrix,
            down_bias: self.down_bias.as_ref(),
        }
    }

    /// The part before the way back, into `gated`; gates have a factor.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    pub(super) fn gate(
        &self,
        backend: &mut B,
        adapters: &mut Adapters<B>,
        (input, factor): (&B::Operand, f32),
        wide: &mut B::States,
        gated: &mut B::Operand,
    ) {
        adapters.linear(backend, input, &self.gate_up, self.gate_up_bias.as_ref(), wide);
        backend.scale(wide, 0..self.intermediate, factor);
        let gate = self.activation.as_ref().map_or(self.gate, |numbers| xielu(&backend.read_vector(numbers)));
        backend.gate(wide, gate, self.intermediate, gated);
    }

    /// The same of an input whose rows have weights; there are no biases, so that a product of a row may be weighed in its
    /// place.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    pub(super) fn gate_weighed(
        &self,
        backend: &mut B,
        adapters: &mut Adapters<B>,
        (input, weights): (&B::Operand, &[(usize, f32)]),
        (out, wide): (&mut B::States, &mut B::States),
        gated: &mut B::Operand,
    ) {
        adapters.linear(backend, input, &self.gate_up, None, out);
        backend.zeros(out, self.gate.inputs(self.intermediate), wide);
        backend.add_scaled(out, weights, wide);
        backend.gate(wide, self.gate, self.intermediate, gated);
    }
}

/// xIELU of what a checkpoint has: `alpha_p`, `alpha_n`, `beta` and `eps`.
fn xielu(learnt: &[f32]) -> Gate {
    let &[positive, negative, slope, most] = learnt else { unreachable!("there are four numbers") };
    Gate::Xielu(Xielu { rising: softplus(positive), falling: slope + softplus(negative), slope, most })
}

/// `ln(1 + e^x)`.
#[expect(clippy::cast_possible_truncation, reason = "the one rounding of the number")]
fn softplus(x: f32) -> f32 {
    let x = f64::from(x);
    (x.max(0.0) + (-x.abs()).exp().ln_1p()) as f32
}
