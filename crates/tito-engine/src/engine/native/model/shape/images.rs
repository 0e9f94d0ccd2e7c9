//! How a model reads images, as data: the tower that makes embeddings of patches, and the positions of these.

use tito_images::PatchShape;

use crate::{
    TokenId,
    engine::native::backend::{Gate, NormShape},
};

/// How a model reads images.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ImagesShape {
    /// The id that stands for a part of an image.
    pub(crate) placeholder: TokenId,
    /// For each pair of numbers of a head that is rotated, by which coordinate of a token it is.
    pub(crate) axes: Vec<Axis>,
    /// What makes embeddings of an image.
    pub(crate) tower: TowerShape,
}

/// One of the coordinates of a token. All three are the same outside of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    /// The place in time.
    Time,
    /// The row of an image.
    Row,
    /// The column of an image.
    Column,
}

/// A tower: an encoder of patches, all of which attend to each other, or to those of their window.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TowerShape {
    /// Numbers of a patch's state.
    pub(crate) hidden: usize,
    /// Heads of queries, keys and values.
    pub(crate) heads: usize,
    /// Numbers between the matrices of a feed-forward part.
    pub(crate) intermediate: usize,
    /// The gate, or activation function, of feed-forward parts.
    pub(crate) gate: Gate,
    /// All norms.
    pub(crate) norm: NormShape,
    /// Whether norms have biases.
    pub(crate) norm_bias: bool,
    /// How patches are cut, and how many of them are joined.
    pub(crate) patch: PatchShape,
    /// Whether what makes a state of a patch has a bias.
    pub(crate) patch_bias: bool,
    /// Positions that are learnt, in a square; `None` where there are none.
    pub(crate) positions: Option<usize>,
    /// The base of the frequencies of rotary embeddings.
    pub(crate) theta: f64,
    /// Layers, each with whether its patches attend to all others rather than to those of their window.
    pub(crate) layers: Vec<bool>,
    /// The sides of windows, in joined patches.
    pub(crate) window: usize,
    /// Numbers of an embedding.
    pub(crate) output: usize,
    /// The layers after which embeddings are made that are added after the first layers of the text, ascending.
    pub(crate) deepstack: Vec<usize>,
    /// What checkpoints call the tensors.
    pub(crate) names: TowerNames,
}

/// The names of a tower's tensors, without `.weight` and `.bias`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TowerNames {
    /// How all of them begin.
    pub(crate) prefix: &'static str,
    /// How they begin in checkpoints of any kind: what is passed over where only text is computed.
    pub(crate) parts: &'static [&'static str],
    /// Gates and ups, or what there is in their place.
    pub(crate) ups: &'static [&'static str],
    /// The way back.
    pub(crate) down: &'static str,
    /// The norm of what is joined, and the two matrices after it.
    pub(crate) merger: [&'static str; 3],
}

impl TowerShape {
    /// Numbers of a head.
    pub(crate) fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// Numbers of as many states as are joined.
    pub(crate) fn joined(&self) -> usize {
        self.hidden * self.patch.merge * self.patch.merge
    }
}
