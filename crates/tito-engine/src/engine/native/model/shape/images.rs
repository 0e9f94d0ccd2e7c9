//! How a model reads images, as data: the tower that makes embeddings of patches, and the positions of these.

use tito_images::PatchShape;

use crate::{
    TokenId,
    engine::{
        ImageFrame,
        native::backend::{Gate, NormShape},
    },
};

/// How a model reads images.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ImagesShape {
    /// The id that stands for a part of an image.
    pub(crate) placeholder: TokenId,
    /// What else shows an image in prompts.
    pub(crate) frame: ImageFrame,
    /// For each pair of numbers of a head that is rotated, by which coordinate of a token it is; none where tokens of images
    /// have positions as all others.
    pub(crate) axes: Vec<Axis>,
    /// Whether tokens of an image attend to all of it, also to later ones. All of it is computed at once then.
    pub(crate) both_ways: bool,
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
#[expect(clippy::struct_excessive_bools, reason = "each is about a part that some towers have")]
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
    /// Whether the matrices of layers have biases.
    pub(crate) biases: bool,
    /// Whether those of queries, keys and values do.
    pub(crate) qkv_biases: bool,
    /// The norm of all queries of a patch as one, and of all its keys, which has no bias; `None` where there is none.
    pub(crate) query_key_norm: Option<NormShape>,
    /// Whether what parts of layers add to states is multiplied by numbers that are learnt.
    pub(crate) scaled: bool,
    /// Whether there is one more state beside those of the patches, which begins as a token that is learnt, comes first, and has
    /// a position of its own. No embedding is made of it.
    pub(crate) class_token: bool,
    /// Whether what makes a state of a patch has a bias.
    pub(crate) patch_bias: bool,
    /// Positions that are learnt, in a square; `None` where there are none.
    pub(crate) positions: Option<usize>,
    /// What there is for places between them.
    pub(crate) interpolation: Interpolation,
    /// The base of the frequencies of rotary embeddings; `None` where nothing is rotated.
    pub(crate) theta: Option<f64>,
    /// Whether rows and columns take turns among the frequencies of a head. If not, both have those of half a head.
    pub(crate) alternating: bool,
    /// Whether there is a norm before the first layer.
    pub(crate) first_norm: bool,
    /// Layers, each with whether its patches attend to all others rather than to those of their window.
    pub(crate) layers: Vec<bool>,
    /// The sides of windows, in joined patches.
    pub(crate) window: usize,
    /// Whether there is a norm after the last layer.
    pub(crate) last_norm: bool,
    /// What makes embeddings of states.
    pub(crate) ending: Ending,
    /// Numbers of an embedding.
    pub(crate) output: usize,
    /// The layers after which embeddings are made that are added after the first layers of the text, ascending.
    pub(crate) deepstack: Vec<usize>,
    /// What checkpoints call the tensors.
    pub(crate) names: TowerNames,
}

/// What there is for places between positions that are learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interpolation {
    /// A line between the two nearest ones in each direction. The corners of an image are at the corners of the square.
    Linear,
    /// A cubic curve through the four nearest ones in each direction. The edges of an image are at the edges of the square.
    Cubic,
}

/// What makes an embedding of the states of as many patches as have one together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Ending {
    /// They are normalised and joined, and go through two matrices.
    Joined,
    /// They are joined and then normalised, and go through two matrices, the first of which makes an embedding already.
    JoinedFirst {
        /// The norm, which has a bias.
        norm: NormShape,
    },
    /// Their mean is normalised, and goes through a matrix, which checkpoints have inputs by outputs.
    Pooled {
        /// The norm, which has no bias.
        norm: NormShape,
    },
    /// They are normalised, and go through three matrices. The first one reads them number by number.
    Projected {
        /// The norm, which has no bias.
        norm: NormShape,
        /// Whether the second and the third matrix have biases.
        biases: bool,
    },
    /// They go through two matrices, of which the first one reads them number by number and has a bias, are normalised and
    /// activated, and go through a feed-forward part with a gate.
    Downsampled {
        /// The norm, which has a bias.
        norm: NormShape,
        /// Numbers between the matrices of the feed-forward part.
        intermediate: usize,
    },
}

/// The names of a tower's tensors, without `.weight` and `.bias`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TowerNames {
    /// How all of them begin.
    pub(crate) prefix: &'static str,
    /// How they begin in checkpoints of any kind: what is passed over where only text is computed.
    pub(crate) parts: &'static [&'static str],
    /// What makes states of patches.
    pub(crate) patch: &'static str,
    /// Whether its tensor has a dimension for the frames of a patch.
    pub(crate) patch_has_frames: bool,
    /// Positions that are learnt; the whole name where there is a token that is learnt.
    pub(crate) positions: &'static str,
    /// The whole name of that token.
    pub(crate) class_token: &'static str,
    /// The norm before the first layer.
    pub(crate) first_norm: &'static str,
    /// How the tensors of layers begin, up to their numbers.
    pub(crate) layers: &'static str,
    /// The norms before attention and before the feed-forward part.
    pub(crate) norms: [&'static str; 2],
    /// Queries, keys and values: all in one, or each.
    pub(crate) qkv: &'static [&'static str],
    /// The norms of queries and keys.
    pub(crate) query_key_norms: [&'static str; 2],
    /// The whole names of what multiplies that which attention and the feed-forward part add.
    pub(crate) scales: [&'static str; 2],
    /// The way back from attention.
    pub(crate) attention_output: &'static str,
    /// Gates and ups, or what there is in their place.
    pub(crate) ups: &'static [&'static str],
    /// The way back.
    pub(crate) down: &'static str,
    /// The norm after the last layer.
    pub(crate) last_norm: &'static str,
    /// The norm of what is joined, and the two matrices after it, the whole names where it is joined first; or the norm of what is pooled and the whole name of its
    /// matrix; or the whole names of the norm of what is projected, and of the three matrices; or the names of the two matrices
    /// of what is downsampled, of the norm, and of gates, ups and the way back.
    pub(crate) merger: &'static [&'static str],
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
