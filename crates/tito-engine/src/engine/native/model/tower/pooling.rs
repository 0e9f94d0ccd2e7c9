//! What pools the states of patches and makes embeddings of their means.

use super::{super::shape::TowerShape, buffers::Buffers};
use crate::engine::native::backend::{Backend, NoRoom, NormShape};

/// What it has learnt.
pub(super) struct Pooling<B: Backend> {
    /// Numbers of a state.
    width: usize,
    /// How many states have a mean together.
    count: usize,
    output: usize,
    norm: NormShape,
    pub(super) weight: B::Vector,
    pub(super) projection: B::Matrix,
}

impl<B: Backend> Pooling<B> {
    pub(super) fn zeros(backend: &B, tower: &TowerShape, norm: NormShape) -> Result<Self, NoRoom> {
        Ok(Self {
            width: tower.hidden,
            count: tower.patch.merge * tower.patch.merge,
            output: tower.output,
            norm,
            weight: backend.vector(tower.hidden)?,
            projection: backend.matrix(tower.output, tower.hidden)?,
        })
    }

    /// The embeddings of what these states are now, row by row.
    pub(super) fn pool(&self, backend: &mut B, rows: usize, buffers: &mut Buffers<B>) -> Vec<f32> {
        let Buffers { hidden, wide, out, input, .. } = buffers;
        backend.join(hidden, self.count, wide);
        backend.zeros(wide, self.width, out);
        let places: Vec<(usize, f32)> = (0..rows).map(|row| (row / self.count, 1.0)).collect();
        backend.add_scaled(hidden, &places, out);
        #[expect(clippy::cast_precision_loss, reason = "few patches are pooled")]
        backend.scale(out, 0..self.width, 1.0 / self.count as f32);
        backend.norm(out, &self.weight, self.norm, input);
        backend.linear(input, &self.projection, None, wide);
        backend.read(wide, self.output)
    }
}
