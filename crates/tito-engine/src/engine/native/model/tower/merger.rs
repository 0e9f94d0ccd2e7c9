//! What joins the states of patches and makes embeddings of them.

use super::{
    super::{
        destinations::InMerger,
        shape::TowerShape,
        target::{Target, numbers},
    },
    buffers::Buffers,
    layer::Norm,
};
use crate::engine::native::backend::{Backend, Gate, NoRoom, NormShape};

/// What it has learnt.
pub(super) struct Merger<B: Backend> {
    /// Numbers of a state, of as many as are joined, and between the two matrices.
    widths: [usize; 3],
    /// How many are joined.
    count: usize,
    output: usize,
    /// Whether what is joined already is normalised.
    joins_first: bool,
    norm: Norm<B>,
    up: B::Matrix,
    up_bias: B::Vector,
    down: B::Matrix,
    down_bias: B::Vector,
}

impl<B: Backend> Merger<B> {
    pub(super) fn zeros(backend: &B, tower: &TowerShape, joins_first: bool) -> Result<Self, NoRoom> {
        let joined = tower.joined();
        let norm = Norm::zeros(backend, tower, if joins_first { joined } else { tower.hidden })?;
        Self::around(backend, tower, norm, (joins_first, joined))
    }

    /// One that joins states first and makes numbers of an embedding of them at once.
    pub(super) fn joining_first(backend: &B, tower: &TowerShape, norm: NormShape) -> Result<Self, NoRoom> {
        let norm = Norm::of(backend, norm, true, tower.joined())?;
        Self::around(backend, tower, norm, (true, tower.output))
    }

    fn around(
        backend: &B,
        tower: &TowerShape,
        norm: Norm<B>,
        (joins_first, inner): (bool, usize),
    ) -> Result<Self, NoRoom> {
        let (joined, output) = (tower.joined(), tower.output);
        Ok(Self {
            widths: [tower.hidden, joined, inner],
            count: tower.patch.merge * tower.patch.merge,
            output,
            joins_first,
            norm,
            up: backend.matrix(inner, joined)?,
            up_bias: backend.vector(inner)?,
            down: backend.matrix(output, inner)?,
            down_bias: backend.vector(output)?,
        })
    }

    pub(super) fn target(&mut self, place: InMerger) -> Option<Target<'_, B>> {
        match place {
            InMerger::Norm => Some(Target::Numbers(&mut self.norm.weight, 0)),
            InMerger::NormBias => numbers(&mut self.norm.bias, 0),
            InMerger::Up => Some(Target::Rows(&mut self.up, 0)),
            InMerger::UpBias => Some(Target::Numbers(&mut self.up_bias, 0)),
            InMerger::Down => Some(Target::Rows(&mut self.down, 0)),
            InMerger::DownBias => Some(Target::Numbers(&mut self.down_bias, 0)),
        }
    }

    /// The embeddings of what the states are now, row by row; the states stay.
    pub(super) fn merge(&self, backend: &mut B, buffers: &mut Buffers<B>) -> Vec<f32> {
        let Buffers { hidden, wide, out, input, gated } = buffers;
        let [width, joined, inner] = self.widths;
        if self.joins_first {
            backend.join(hidden, self.count, wide);
            self.norm.apply_in_place(backend, wide);
        } else {
            backend.zeros(hidden, width, out);
            backend.place(hidden, 0..width, out, 0);
            self.norm.apply_in_place(backend, out);
            backend.join(out, self.count, wide);
        }
        backend.round(wide, 0..joined, input);
        backend.linear(input, &self.up, Some(&self.up_bias), wide);
        backend.gate(wide, Gate::GeluAlone, inner, gated);
        backend.linear(gated, &self.down, Some(&self.down_bias), out);
        backend.read(out, self.output)
    }
}
