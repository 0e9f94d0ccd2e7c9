//! What a model computes, as data: sizes, and for each layer what it is made of.
//!
//! Owns the vocabulary in which families are described. Refuses config.json, which each family reads for itself.

use super::{names::Names, rope::RopeConfig};
use crate::engine::native::{
    backend::{AttentionShape, CacheShape, Gate, LogitShape, NormShape},
    recurrence::RecurrentShape,
};

/// The arithmetic of a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelShape {
    /// Numbers of a token's state.
    pub(crate) hidden: usize,
    /// Tokens that there are.
    pub(crate) vocab_size: usize,
    /// Whether the embeddings are the head too.
    pub(crate) tied: bool,
    /// All norms.
    pub(crate) norm: NormShape,
    /// The factor of embeddings.
    pub(crate) embedding_factor: f32,
    /// What becomes of logits.
    pub(crate) logits: LogitShape,
    /// The rotary embeddings that layers choose from.
    pub(crate) ropes: Vec<RopeConfig>,
    /// All layers.
    pub(crate) layers: Vec<LayerShape>,
    /// What checkpoints call the tensors.
    pub(crate) names: Names,
}

/// What a layer is made of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerShape {
    /// Attention.
    pub(crate) attention: AttentionLayer,
    /// Where states are normalised.
    pub(crate) norms: NormPlaces,
    /// The factor of what attention and the feed-forward part add to a state.
    pub(crate) residual_factor: f32,
    /// The recurrent state; `None` where the layer has none.
    pub(crate) recurrent: Option<RecurrentShape>,
    /// The feed-forward part.
    pub(crate) mlp: MlpShape,
}

/// Where the norms of a layer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NormPlaces {
    /// Before attention and before the feed-forward part.
    Before,
    /// After them, before their results are added.
    After,
    /// Both.
    Both,
}

impl NormPlaces {
    /// Whether what goes into a part is normalised.
    pub(crate) fn before(self) -> bool {
        self != Self::After
    }

    /// Whether what comes out of a part is normalised.
    pub(crate) fn after(self) -> bool {
        self != Self::Before
    }
}

/// Attention of a layer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AttentionLayer {
    /// Queries.
    pub(crate) shape: AttentionShape,
    /// Keys and values.
    pub(crate) kept: CacheShape,
    /// Biases on query, key and value.
    pub(crate) qkv_bias: bool,
    /// A bias on the output.
    pub(crate) output_bias: bool,
    /// A score of each head of queries that takes weight from the keys.
    pub(crate) sinks: bool,
    /// Norms of queries and keys.
    pub(crate) head_norms: Option<HeadNorms>,
    /// How queries and keys are rotated; `None` if they are not.
    pub(crate) rotation: Option<LayerRotation>,
    /// How keys and values are compressed; `None` if they are not.
    pub(crate) latent: Option<LatentShape>,
}

/// Keys and values that are compressed to one vector for all heads (multi-head latent attention).
///
/// What is kept of a token is that vector, after the part of the key that is rotated: one head, whose key and whose value
/// are the same numbers. Heads of queries are brought into its space instead of keys out of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LatentShape {
    /// Numbers of a compressed query; `None` where queries are not compressed.
    pub(crate) query_rank: Option<usize>,
    /// Numbers of the compressed key and value.
    pub(crate) rank: usize,
    /// Numbers of a head of queries that are not rotated.
    pub(crate) apart: usize,
    /// Numbers of a head of queries that are.
    pub(crate) rotated: usize,
    /// Numbers of a head of values.
    pub(crate) value: usize,
    /// The epsilon of the norms of what is compressed.
    pub(crate) epsilon: f32,
    /// Whether what compresses has biases.
    pub(crate) bias: bool,
}

/// Norms of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeadNorms {
    /// Whether all heads are normalised as one; otherwise each is on its own.
    pub(crate) whole: bool,
    /// Whether they follow the rotation.
    pub(crate) after_rotation: bool,
}

/// Which rotary embeddings queries and keys have, as places in [`ModelShape::ropes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LayerRotation {
    /// That of the queries.
    pub(crate) queries: usize,
    /// That of the keys.
    pub(crate) keys: usize,
    /// Whether a pair of numbers are neighbours.
    pub(crate) neighbours: bool,
}

/// What a layer's feed-forward part is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MlpShape {
    /// One.
    Dense(DenseShape),
    /// A choice of experts for each token.
    Sparse(SparseShape),
}

/// A gated feed-forward part.
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
}

/// How experts are chosen, and what weight each of the chosen has.
#[derive(Debug, Clone, Copy, PartialEq)]
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
    /// The factor of all weights.
    pub(crate) factor: f32,
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

impl MlpShape {
    /// How many experts there are.
    pub(crate) fn experts(&self) -> usize {
        match self {
            Self::Dense(_) => 0,
            Self::Sparse(sparse) => sparse.experts,
        }
    }

    fn widest_row(&self) -> usize {
        match self {
            Self::Dense(dense) => 2 * dense.intermediate,
            Self::Sparse(sparse) => {
                let shared = sparse.shared.map_or(0, |shared| shared.dense.intermediate);
                2 * sparse.expert.intermediate.max(shared)
            }
        }
    }
}

impl AttentionLayer {
    /// Numbers of what all heads give.
    pub(crate) fn output_width(&self) -> usize {
        self.latent.map_or(self.query_width(), |latent| self.shape.heads * latent.value)
    }

    /// Numbers of all queries of a token, as they attend.
    pub(crate) fn query_width(&self) -> usize {
        self.shape.heads * self.kept.head_dim
    }

    /// Numbers of all keys of a token.
    pub(crate) fn key_width(&self) -> usize {
        self.kept.heads * self.kept.head_dim
    }

    /// Rows of the joined projection to queries, keys and values.
    pub(crate) fn qkv_width(&self) -> usize {
        self.query_width() + 2 * self.key_width()
    }

    /// How long the vectors of the head norms are: that of queries, and that of keys.
    pub(crate) fn norm_widths(&self, norms: HeadNorms) -> (usize, usize) {
        let head_dim = self.kept.head_dim;
        if norms.whole { (self.query_width(), self.key_width()) } else { (head_dim, head_dim) }
    }
}

impl ModelShape {
    /// Numbers of the widest rows between two layers.
    pub(crate) fn widest_row(&self) -> usize {
        let widest = |layer: &LayerShape| layer.mlp.widest_row().max(layer.attention.qkv_width());
        self.layers.iter().map(widest).max().unwrap_or(0)
    }
}
