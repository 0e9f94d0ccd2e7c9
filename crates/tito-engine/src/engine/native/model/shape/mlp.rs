//! Feed-forward parts and mixtures of experts.

use crate::engine::native::backend::Gate;

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

/// How experts are chosen, and what weight each of the chosen has.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "what a router has and has not is independent of each other")]
pub(crate) struct RouterShape {
    /// What makes weights of scores.
    pub(crate) scores: Scores,
    /// Whether the scores have a bias.
    pub(crate) bias: bool,
    /// Whether the choice, but not the weights, has a bias.
    pub(crate) choice_bias: bool,
    /// Groups of experts, of which some are chosen first.
    pub(crate) groups: Option<Groups>,
    /// Whether the weights of the chosen are divided by their sum, which counts as at least this much.
    pub(crate) normalize: Option<f32>,
    /// What is added to that sum.
    pub(crate) added: f32,
    /// The factor of all weights.
    pub(crate) factor: f32,
    /// Whether weights are factors of what experts read, rather than of what they give.
    pub(crate) on_inputs: bool,
    /// Whether scores are made of a state that is normalised with weights of its own, and divided by the root of its width,
    /// and the weight of each expert has a learnt factor.
    pub(crate) normed: bool,
}

/// What makes weights of scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scores {
    /// A softmax over all experts.
    Softmax,
    /// A sigmoid of each.
    Sigmoid,
}

/// Groups of experts, of which some are chosen before experts are chosen from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Groups {
    /// How many groups of the same size there are.
    pub(crate) count: usize,
    /// How many of them are chosen.
    pub(crate) chosen: usize,
    /// A group counts as much as so many of its best experts do together.
    pub(crate) best: usize,
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

    pub(super) fn widest_row(&self) -> usize {
        match self {
            Self::Dense(dense) => dense.inner_width(),
            Self::Sparse(sparse) => sparse.widest_row(),
            Self::Both(dense, sparse) => dense.inner_width().max(sparse.widest_row()),
        }
    }
}

impl SparseShape {
    fn widest_row(&self) -> usize {
        let shared = self.shared.map_or(0, |shared| shared.dense.inner_width());
        self.expert.inner_width().max(shared)
    }
}
