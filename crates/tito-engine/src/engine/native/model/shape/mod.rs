//! What a model computes, as data: sizes, and for each layer what it is made of.
//!
//! Owns the vocabulary in which families are described. Refuses config.json, which each family reads for itself.

mod images;
mod mlp;

pub(crate) use images::{Axis, Ending, ImagesShape, Interpolation, TowerNames, TowerShape};
pub(crate) use mlp::{DenseShape, LatentExperts, MlpShape, SharedShape, SparseShape};

pub(crate) use crate::engine::native::routing::{Groups, RouterShape, Scores};

use super::{names::Names, rope::RopeConfig};
use crate::engine::native::{
    backend::{AttentionShape, CacheShape, Gate, LogitShape, NormShape},
    recurrence::{ConvolutionShape, GatedNormShape, RecurrenceShape, RecurrentShape},
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
    /// What each layer reads of a token besides its state; `None` where they read nothing else.
    pub(crate) inputs: Option<InputShape>,
    /// How it reads images; `None` where it reads text alone.
    pub(crate) images: Option<ImagesShape>,
    /// The longest sequence that is computed as the model's own code does; `None` for any.
    pub(crate) longest: Option<Longest>,
    /// All layers.
    pub(crate) layers: Vec<LayerShape>,
    /// What checkpoints call the tensors.
    pub(crate) names: Names,
}

/// How long sequences may be, and why not longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Longest {
    /// Tokens of a sequence.
    pub(crate) tokens: usize,
    /// The setting that says so.
    pub(crate) key: &'static str,
    /// What is beyond.
    pub(crate) reason: &'static str,
}

/// Numbers of a token that each layer has of its own. They are looked up, and made of the embedding, for all layers at
/// once; each layer adds to a state what a gate, which reads the state, lets through of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct InputShape {
    /// Numbers of a token in a layer.
    pub(crate) width: usize,
    /// Tokens that there are numbers for.
    pub(crate) vocab_size: usize,
    /// The gate.
    pub(crate) gate: Gate,
}

/// What a layer is made of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerShape {
    /// Attention; `None` where the layer has none.
    pub(crate) attention: Option<AttentionLayer>,
    /// A part with a recurrent state, which reads what attention reads; `None` where the layer has none.
    pub(crate) recurrent: Option<RecurrentLayer>,
    /// Where states are normalised.
    pub(crate) norms: NormPlaces,
    /// The factor of what the parts add to a state.
    pub(crate) residual_factor: f32,
    /// Factors of single parts.
    pub(crate) factors: PartFactors,
    /// The feed-forward part; `None` where the layer has none.
    pub(crate) mlp: Option<MlpShape>,
    /// Whether the state is multiplied by a learnt number at the end of the layer.
    pub(crate) scaled: bool,
}

/// Factors of what parts make of a state, and of what they add to it; all are 1 in most models.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PartFactors {
    /// Queries and values.
    pub(crate) attention: f32,
    /// Keys.
    pub(crate) keys: f32,
    /// What attention adds.
    pub(crate) attention_output: f32,
    /// Gates, values, keys, queries and steps of a scan.
    pub(crate) scan: [f32; 5],
    /// What a part with a recurrent state adds.
    pub(crate) recurrent_output: f32,
    /// Gates of a dense feed-forward part.
    pub(crate) gates: f32,
    /// What it adds.
    pub(crate) mlp_output: f32,
}

impl PartFactors {
    /// No factors.
    pub(crate) const ONES: Self = Self {
        attention: 1.0,
        keys: 1.0,
        attention_output: 1.0,
        scan: [1.0; 5],
        recurrent_output: 1.0,
        gates: 1.0,
        mlp_output: 1.0,
    };
}

impl LayerShape {
    /// The attention for which keys and values are kept.
    pub(crate) fn keeping(&self) -> Option<&AttentionLayer> {
        self.attention.as_ref().filter(|attention| attention.shares.is_none())
    }

    /// The other layer whose keys and values it attends to, if it does.
    pub(crate) fn cache(&self) -> Option<usize> {
        self.attention.as_ref()?.shares
    }

    /// Whether it has a part that looks at other tokens.
    pub(crate) fn mixes(&self) -> bool {
        self.attention.is_some() || self.recurrent.is_some()
    }
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
    /// Before attention; the feed-forward part reads the same.
    Shared,
}

impl NormPlaces {
    /// Whether what goes into attention is normalised.
    pub(crate) fn before(self) -> bool {
        self != Self::After
    }

    /// Whether there is a norm for what goes into the feed-forward part.
    pub(crate) fn before_mlp(self) -> bool {
        matches!(self, Self::Before | Self::Both)
    }

    /// Whether what comes out of a part is normalised.
    pub(crate) fn after(self) -> bool {
        matches!(self, Self::After | Self::Both)
    }
}

/// Attention of a layer.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "what attention has and has not is independent of each other")]
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
    /// The place in [`ModelShape::ropes`] of the angles, all of them 0, by whose factors queries grow with their position,
    /// besides their rotation; `None` if they do not.
    pub(crate) growth: Option<usize>,
    /// How keys and values are compressed; `None` if they are not.
    pub(crate) latent: Option<LatentShape>,
    /// Whether each number of what heads give is multiplied by the sigmoid of a gate of its own. A checkpoint has the
    /// rows of a head's gates after those of its query.
    pub(crate) gated: bool,
    /// Whether values are the keys as they are made, before any norm and rotation, rather than made on their own.
    pub(crate) values_are_keys: bool,
    /// Whether values are normalised, each head of them and without weights.
    pub(crate) value_norms: bool,
    /// The layer whose keys and values it attends to; `None` where it makes its own.
    pub(crate) shares: Option<usize>,
}

/// A part with a recurrent state.
///
/// A row is made of a state by one matrix: what is convolved, and all else that the recurrence reads. What it gives is
/// normalised, gated and brought back by another matrix.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RecurrentLayer {
    /// Rows of each tensor that makes numbers of a state, one after the other.
    pub(crate) inputs: Vec<usize>,
    /// Whether these have a bias.
    pub(crate) input_bias: bool,
    /// The rank of the matrices that make the steps, and of those that make the gates, two each; these numbers stand
    /// after all others of a row. `None` where steps and gates are among the inputs.
    pub(crate) rank: Option<usize>,
    /// The convolution.
    pub(crate) convolution: ConvolutionShape,
    /// Whether it has a bias.
    pub(crate) convolution_bias: bool,
    /// What is made of it.
    pub(crate) mixing: Mixing,
    /// Whether the way back has a bias.
    pub(crate) output_bias: bool,
}

/// What a part with a recurrent state makes of what is convolved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mixing {
    /// Tables that every token writes to and reads.
    Tables {
        /// The recurrence.
        recurrence: RecurrenceShape,
        /// Whether a part of each value goes straight to the output.
        skip: bool,
        /// Norm and gates of the output.
        norm: GatedNormShape,
        /// How many weights the norm has; `None` where there are only gates.
        norm_weights: Option<usize>,
    },
    /// The last third of a row is multiplied by the first one, convolved, and multiplied by the second one.
    Gates,
}

impl RecurrentLayer {
    /// What is kept of a sequence.
    pub(crate) fn state(&self) -> RecurrentShape {
        let ConvolutionShape { channels, taps, .. } = self.convolution;
        let (heads, key, value) = match self.mixing {
            Mixing::Tables { recurrence: RecurrenceShape { heads, key, value, .. }, .. } => (heads, key, value),
            Mixing::Gates => (0, 0, 0),
        };
        RecurrentShape { channels, before: taps - 1, heads, key, value }
    }

    /// Numbers of a row that one matrix makes of a state.
    pub(crate) fn input_width(&self) -> usize {
        self.inputs.iter().sum()
    }

    /// Numbers of a whole row.
    pub(crate) fn row_width(&self) -> usize {
        let more = match self.mixing {
            Mixing::Tables { recurrence, .. } if self.rank.is_some() => recurrence.step_count() + self.output_width(),
            _ => 0,
        };
        self.input_width() + more
    }

    /// Numbers of what is brought back.
    pub(crate) fn output_width(&self) -> usize {
        match self.mixing {
            Mixing::Tables { recurrence, .. } => recurrence.heads * recurrence.value,
            Mixing::Gates => self.convolution.channels,
        }
    }
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
    /// What is normalised at a time, and with which weights.
    pub(crate) kind: HeadNormKind,
    /// Whether they follow the rotation.
    pub(crate) after_rotation: bool,
}

/// What is normalised at a time, and with which weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadNormKind {
    /// Each head, all of them with the same weights.
    Alike,
    /// Each head, with weights of its own.
    Each,
    /// All heads as one.
    Whole,
    /// Each head, without weights.
    Plain,
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

    /// Numbers of all queries, keys and values of a token.
    pub(crate) fn qkv_width(&self) -> usize {
        self.query_width() + 2 * self.key_width()
    }

    /// How many of queries, keys and values the layer makes, in this order.
    pub(crate) fn made_parts(&self) -> usize {
        match self.shares {
            Some(_) => 1,
            None if self.values_are_keys => 2,
            None => 3,
        }
    }

    /// Rows of the joined projection that makes them.
    pub(crate) fn made_width(&self) -> usize {
        self.query_width() + (self.made_parts() - 1) * self.key_width()
    }

    /// How long the vectors of the head norms are: that of queries, and that of keys.
    pub(crate) fn norm_widths(&self, norms: HeadNorms) -> (usize, usize) {
        match norms.kind {
            HeadNormKind::Alike | HeadNormKind::Plain => (self.kept.head_dim, self.kept.head_dim),
            HeadNormKind::Each | HeadNormKind::Whole => (self.query_width(), self.key_width()),
        }
    }
}

impl ModelShape {
    /// The same without what reads images, whose tensors are left out.
    pub(crate) fn of_text_alone(mut self) -> Self {
        if let Some(images) = self.images.take() {
            self.names.other_parts = images.tower.names.parts;
        }
        self
    }

    /// Numbers of the widest rows between two layers.
    pub(crate) fn widest_row(&self) -> usize {
        let widest = |layer: &LayerShape| {
            let mlp = layer.mlp.as_ref().map_or(0, MlpShape::widest_row);
            let attention = layer.attention.as_ref().map_or(0, AttentionLayer::qkv_width);
            mlp.max(attention).max(layer.recurrent.as_ref().map_or(0, RecurrentLayer::row_width))
        };
        let inputs = self.inputs.map_or(0, |inputs| inputs.width * self.layers.len());
        self.layers.iter().map(widest).max().unwrap_or(0).max(inputs)
    }

    /// Numbers of a token for which all of its experts have room at once, in f32; zero in a model without mixtures.
    pub(crate) fn mixture_row(&self) -> usize {
        let of_layer = |layer: &LayerShape| layer.mlp.as_ref().map_or(0, |mlp| mlp.mixture_row(self.hidden));
        self.layers.iter().map(of_layer).max().unwrap_or(0)
    }

    /// The attention of each layer that has some.
    pub(crate) fn attentions(&mut self) -> impl Iterator<Item = &mut AttentionLayer> {
        self.layers.iter_mut().filter_map(|layer| layer.attention.as_mut())
    }
}
