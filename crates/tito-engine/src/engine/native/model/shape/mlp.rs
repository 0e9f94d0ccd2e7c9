//! Feed-forward parts and mixtures of experts.

use crate::engine::native::{
    backend::Gate,
    routing::{ExpertShape, RouterShape, Routing},
};

/// What a layer's feed-forward part is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MlpShape {
    /// One.
    Dense(DenseShape),
    /// A choice of experts for each token.
    Sparse(SparseShape),
    /// Both side by side, each with norms of its own.
    Both(DenseShape, SparseShape),
}

/// A feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DenseShape {
    /// Its inner width.
    pub(crate) intermediate: usize,
    /// Whether its matrices have biases.
    pub(crate) bias: bool,
    /// Its gate.
    pub(crate) gate: Gate,
}

/// A mixture of experts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SparseShape {
    /// How many experts there are.
    pub(crate) experts: usize,
    /// How many a token goes through.
    pub(crate) per_token: usize,
    /// What each of them is.
    pub(crate) expert: DenseShape,
    /// How they are chosen.
    pub(crate) router: RouterShape,
    /// What every token goes through besides.
    pub(crate) shared: Option<SharedShape>,
    /// How states are compressed for the experts that are chosen; `None` if they are not.
    pub(crate) latent: Option<LatentExperts>,
}

/// Experts that read compressed states, and whose sum is brought back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LatentExperts {
    /// Numbers of a compressed state.
    pub(crate) width: usize,
    /// Whether both ways have biases.
    pub(crate) bias: bool,
}

/// Experts that every token goes through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SharedShape {
    /// They are one feed-forward part.
    pub(crate) dense: DenseShape,
    /// Whether a token's own gate weighs what comes out of it.
    pub(crate) gated: bool,
}

impl DenseShape {
    /// Numbers that the gate reads.
    pub(crate) fn inner_width(&self) -> usize {
        self.gate.inputs(self.intermediate)
    }
}

impl MlpShape {
    /// How many experts there are.
    pub(crate) fn experts(&self) -> usize {
        match self {
            Self::Dense(_) => 0,
            Self::Sparse(sparse) | Self::Both(_, sparse) => sparse.experts,
        }
    }

    /// Numbers of all experts of a token: gates and ups, what comes out of the gates, and what the experts give.
    pub(super) fn mixture_row(&self, hidden: usize) -> usize {
        match self {
            Self::Dense(_) => 0,
            Self::Sparse(sparse) | Self::Both(_, sparse) => {
                let ExpertShape { width, intermediate, .. } = sparse.expert_shape(hidden);
                sparse.per_token * (sparse.expert.inner_width() + intermediate + width)
            }
        }
    }

    pub(super) fn widest_row(&self) -> usize {
        match self {
            Self::Dense(dense) => dense.inner_width(),
            Self::Sparse(sparse) => sparse.widest_row(),
            Self::Both(dense, sparse) => dense.inner_width().max(sparse.widest_row()),
        }
    }
}

impl SparseShape {
    /// How tokens are sent to experts.
    pub(crate) fn routing(&self) -> Routing {
        Routing { experts: self.experts, per_token: self.per_token, router: self.router }
    }

    /// What all experts are, of states of this width.
    pub(crate) fn expert_shape(&self, hidden: usize) -> ExpertShape {
        let DenseShape { intermediate, gate, .. } = self.expert;
        ExpertShape { width: self.latent.map_or(hidden, |latent| latent.width), intermediate, gate }
    }

    fn widest_row(&self) -> usize {
        let shared = self.shared.map_or(0, |shared| shared.dense.inner_width());
        self.expert.inner_width().max(shared)
    }
}
