//! A feed-forward part and a mixture of experts side by side.

use super::{
    dense::Dense,
    destinations::InLayer,
    mixture::Sparse,
    shape::{DenseShape, ModelShape, SparseShape},
    workspace::Workspace,
};
use crate::engine::native::backend::{Backend, HeadRange, NoRoom, NormShape};

/// Both, and the norms that each has of its own. The one before the feed-forward part is the layer's.
pub(super) struct Both<B: Backend> {
    norm: NormShape,
    hidden: usize,
    pub(super) dense: Dense<B>,
    pub(super) sparse: Sparse<B>,
    pub(super) after_dense: B::Vector,
    pub(super) before_sparse: B::Vector,
    pub(super) after_sparse: B::Vector,
}

impl<B: Backend> Both<B> {
    pub(super) fn zeros(
        backend: &B,
        &ModelShape { hidden, norm, .. }: &ModelShape,
        dense: DenseShape,
        sparse: &SparseShape,
    ) -> Result<Self, NoRoom> {
        let vector = || backend.vector(hidden);
        Ok(Self {
            norm,
            hidden,
            dense: Dense::zeros(backend, InLayer::Dense, hidden, dense)?,
            sparse: Sparse::zeros(backend, (hidden, norm), sparse)?,
            after_dense: vector()?,
            before_sparse: vector()?,
            after_sparse: vector()?,
        })
    }

    /// Makes the sum of what the feed-forward part makes of the input, and experts of the residual stream.
    pub(super) fn make(&self, backend: &mut B, workspace: &mut Workspace<B>, sum: &mut B::States) {
        let (norm, whole) = (self.norm, HeadRange::whole(self.hidden));
        let Workspace { hidden, wide, input, gated, adapters, .. } = workspace;
        self.dense.gate(backend, adapters, (input, 1.0), wide, gated);
        adapters.linear(backend, gated, &self.dense.down, self.dense.down_bias.as_ref(), sum);
        backend.head_norm(sum, whole, &self.after_dense, norm);
        backend.norm(hidden, &self.before_sparse, norm, input);
        let mut experts = std::mem::take(&mut workspace.head);
        backend.zeros(sum, self.hidden, &mut experts);
        self.sparse.add(backend, 1.0, workspace, &mut experts);
        backend.head_norm(&mut experts, whole, &self.after_sparse, norm);
        backend.add(&experts, 1.0, sum);
        workspace.head = experts;
    }
}
