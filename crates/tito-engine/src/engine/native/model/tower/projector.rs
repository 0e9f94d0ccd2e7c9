//! What projects the states of patches, as many at once as have an embedding together.

use super::{
    super::{
        destinations::InProjector,
        shape::TowerShape,
        target::{Target, numbers},
    },
    buffers::Buffers,
};
use crate::engine::native::backend::{Backend, Gate, HeadRange, NoRoom, NormShape};

/// What it has learnt.
pub(super) struct Projector<B: Backend> {
    /// Numbers of a state, and of as many as have an embedding together.
    widths: [usize; 2],
    /// How many have one.
    count: usize,
    output: usize,
    norm_shape: NormShape,
    norm: B::Vector,
    join: B::Matrix,
    up: B::Matrix,
    up_bias: Option<B::Vector>,
    down: B::Matrix,
    down_bias: Option<B::Vector>,
}

impl<B: Backend> Projector<B> {
    pub(super) fn zeros(backend: &B, tower: &TowerShape, norm: NormShape, biases: bool) -> Result<Self, NoRoom> {
        let (hidden, joined, output) = (tower.hidden, tower.joined(), tower.output);
        let bias = || biases.then(|| backend.vector(output)).transpose();
        Ok(Self {
            widths: [hidden, joined],
            count: tower.patch.merge * tower.patch.merge,
            output,
            norm_shape: norm,
            norm: backend.vector(hidden)?,
            join: backend.matrix(hidden, joined)?,
            up: backend.matrix(output, hidden)?,
            up_bias: bias()?,
            down: backend.matrix(output, output)?,
            down_bias: bias()?,
        })
    }

    pub(super) fn target(&mut self, place: InProjector) -> Option<Target<'_, B>> {
        match place {
            InProjector::Norm => Some(Target::Numbers(&mut self.norm, 0)),
            InProjector::Join => Some(Target::Rows(&mut self.join, 0)),
            InProjector::Up => Some(Target::Rows(&mut self.up, 0)),
            InProjector::UpBias => numbers(&mut self.up_bias, 0),
            InProjector::Down => Some(Target::Rows(&mut self.down, 0)),
            InProjector::DownBias => numbers(&mut self.down_bias, 0),
        }
    }

    /// The embeddings of what the states are now, row by row. The states are overwritten.
    pub(super) fn project(&self, backend: &mut B, buffers: &mut Buffers<B>) -> Vec<f32> {
        let Buffers { hidden, wide, out, input, gated } = buffers;
        let [width, joined] = self.widths;
        backend.head_norm(hidden, HeadRange::whole(width), &self.norm, self.norm_shape);
        backend.interleave(hidden, self.count, wide);
        backend.round(wide, 0..joined, input);
        backend.linear(input, &self.join, None, out);
        backend.round(out, 0..width, input);
        backend.linear(input, &self.up, self.up_bias.as_ref(), wide);
        backend.gate(wide, Gate::GeluAlone, self.output, gated);
        backend.linear(gated, &self.down, self.down_bias.as_ref(), out);
        backend.read(out, self.output)
    }
}
