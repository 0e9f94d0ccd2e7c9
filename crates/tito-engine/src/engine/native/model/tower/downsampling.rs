//! What joins the states of patches by a convolution, and makes embeddings of them.

use super::{
    super::{
        destinations::InDownsampling,
        shape::TowerShape,
        target::{Target, numbers},
    },
    buffers::Buffers,
    layer::Norm,
};
use crate::engine::native::backend::{Backend, Gate, NoRoom, NormShape};

/// What it has learnt.
pub(super) struct Downsampling<B: Backend> {
    /// Numbers of as many states as have an embedding together, of an embedding, and between the matrices of the feed-forward
    /// part.
    widths: [usize; 3],
    /// How many states have an embedding together.
    count: usize,
    /// The gate of the feed-forward part.
    gate: Gate,
    join: B::Matrix,
    join_bias: B::Vector,
    projection: B::Matrix,
    norm: Norm<B>,
    up: B::Matrix,
    down: B::Matrix,
}

impl<B: Backend> Downsampling<B> {
    pub(super) fn zeros(backend: &B, tower: &TowerShape, norm: NormShape, intermediate: usize) -> Result<Self, NoRoom> {
        let (joined, output) = (tower.joined(), tower.output);
        Ok(Self {
            widths: [joined, output, intermediate],
            count: tower.patch.merge * tower.patch.merge,
            gate: tower.gate,
            join: backend.matrix(output, joined)?,
            join_bias: backend.vector(output)?,
            projection: backend.matrix(output, output)?,
            norm: Norm::of(backend, norm, true, output)?,
            up: backend.matrix(tower.gate.inputs(intermediate), output)?,
            down: backend.matrix(output, intermediate)?,
        })
    }

    pub(super) fn target(&mut self, place: InDownsampling) -> Option<Target<'_, B>> {
        match place {
            InDownsampling::Join => Some(Target::Rows(&mut self.join, 0)),
            InDownsampling::JoinBias => Some(Target::Numbers(&mut self.join_bias, 0)),
            InDownsampling::Projection => Some(Target::Rows(&mut self.projection, 0)),
            InDownsampling::Norm => Some(Target::Numbers(&mut self.norm.weight, 0)),
            InDownsampling::NormBias => numbers(&mut self.norm.bias, 0),
            InDownsampling::Up(first) => Some(Target::Rows(&mut self.up, first)),
            InDownsampling::Down => Some(Target::Rows(&mut self.down, 0)),
        }
    }

    /// The embeddings of what the states are now, row by row.
    pub(super) fn downsample(&self, backend: &mut B, buffers: &mut Buffers<B>) -> Vec<f32> {
        let Buffers { hidden, wide, out, input, gated } = buffers;
        let [joined, output, intermediate] = self.widths;
        backend.interleave(hidden, self.count, wide);
        backend.round(wide, 0..joined, input);
        backend.linear(input, &self.join, Some(&self.join_bias), out);
        backend.round(out, 0..output, input);
        backend.linear(input, &self.projection, None, out);
        self.norm.apply_in_place(backend, out);
        backend.gate(out, Gate::GeluAlone, output, gated);
        backend.linear(gated, &self.up, None, wide);
        backend.gate(wide, self.gate, intermediate, gated);
        backend.linear(gated, &self.down, None, out);
        backend.read(out, output)
    }
}
