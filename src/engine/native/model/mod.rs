//! One definition of all models: decoders with rotary embeddings, root-mean-square norms and gated feed-forward parts.
//!
//! Owns the order of operations. Refuses tensors, which are the backend's, and sequences, which are the scheduler's.

mod config;
mod rope;
mod settings;
mod tensors;
mod update;

pub(crate) use config::ModelShape;
pub(crate) use settings::ConfigError;
pub(crate) use tensors::{Checked, parameter_count};
pub(crate) use update::Undo;

use std::{collections::BTreeSet, ops::Range};

use super::{
    backend::{AttentionShape, Backend, Batch, Consumer, NoRoom},
    weights::{Weights, WeightsError},
};
use config::{LayerShape, MlpShape};
use tensors::Tensors;

/// How many rows have their logits in memory at a time.
pub(super) const LOGIT_ROWS: usize = 256;

/// A model on a backend, with its cache of keys and values.
pub(crate) struct Model<B: Backend> {
    shape: ModelShape,
    backend: B,
    tensors: Tensors,
    /// `None` while their memory is given back.
    parameters: Option<Parameters<B>>,
    /// Tensors that are to be written before anything can be computed.
    lacking: BTreeSet<String>,
    caches: Vec<B::Cache>,
    /// The number of blocks of each cache.
    blocks: usize,
    workspace: Workspace<B>,
}

/// All that was learnt.
struct Parameters<B: Backend> {
    embedding: B::Matrix,
    layers: Vec<Layer<B>>,
    norm: B::Vector,
    /// The head; `None` where the embeddings are the head too.
    head: Option<B::Matrix>,
}

struct Layer<B: Backend> {
    shape: LayerShape,
    attention_norm: B::Vector,
    /// Queries, keys and values.
    qkv: B::Matrix,
    qkv_bias: Option<B::Vector>,
    query_norm: Option<B::Vector>,
    key_norm: Option<B::Vector>,
    output: B::Matrix,
    output_bias: Option<B::Vector>,
    mlp_norm: B::Vector,
    mlp: Mlp<B>,
}

enum Mlp<B: Backend> {
    Dense(Dense<B>),
    Sparse { router: B::Matrix, experts: Vec<Dense<B>>, per_token: usize, normalize: bool },
}

struct Dense<B: Backend> {
    intermediate: usize,
    gate_up: B::Matrix,
    gate_up_bias: Option<B::Vector>,
    down: B::Matrix,
    down_bias: Option<B::Vector>,
}

/// Buffers of a step.
struct Workspace<B: Backend> {
    hidden: B::States,
    wide: B::States,
    expert: B::States,
    input: B::Operand,
    picked: B::Operand,
    attended: B::Operand,
    gated: B::Operand,
}

impl<B: Backend> Model<B> {
    /// Loads all of a model's weights; `progress` is called with the tensors that are there and their number.
    pub(crate) fn load(
        backend: B,
        shape: ModelShape,
        weights: &dyn Weights,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, WeightsError> {
        let tensors = Tensors::of(&shape);
        let checked = Checked::new(&tensors, weights, true)?;
        let mut model = Self {
            tensors,
            parameters: Some(Parameters::zeros(&backend, &shape)?),
            lacking: BTreeSet::new(),
            caches: Vec::new(),
            blocks: 0,
            workspace: Workspace::new(&backend),
            backend,
            shape,
        };
        model.write(&checked, progress)?;
        Ok(model)
    }

    /// Compares tensors with the model's, by name and shape.
    pub(crate) fn check<'a>(&self, weights: &'a dyn Weights) -> Result<Checked<'a>, WeightsError> {
        Checked::new(&self.tensors, weights, false)
    }

    /// The arithmetic.
    pub(crate) fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The memory of one block of all layers, in bytes.
    pub(crate) fn block_bytes(backend: &B, shape: &ModelShape) -> usize {
        shape.layers.len() * backend.block_bytes(shape.cache_shape())
    }

    /// Makes room for `blocks` blocks of keys and values; whatever was cached is gone.
    pub(crate) fn allocate_cache(&mut self, blocks: usize) -> Result<(), NoRoom> {
        let cache = |_| self.backend.cache(self.shape.cache_shape(), blocks);
        self.caches = self.shape.layers.iter().map(cache).collect::<Result<_, _>>()?;
        self.blocks = blocks;
        Ok(())
    }

    /// The number of blocks that there is room for.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Copies blocks, `(from, to)`.
    pub(crate) fn copy_blocks(&mut self, copies: &[(u32, u32)]) {
        for (from, to) in copies {
            for cache in &mut self.caches {
                self.backend.copy_block(cache, *from, *to);
            }
        }
    }

    /// Computes a batch; gives the consumer the logits of each row of `batch.logit_rows`, by its place there.
    ///
    /// Answers for each span whether all its new keys and values are finite. Where they are not, nobody else may use
    /// its new blocks: even tokens before the broken one multiply it with zero, which makes NaN of infinity.
    pub(crate) fn forward(&mut self, batch: &Batch, consumer: &dyn Consumer) -> Vec<bool> {
        let Self { shape, backend, parameters, caches, workspace, .. } = self;
        let parameters = parameters.as_ref().expect("nothing is computed without weights");
        let Parameters { embedding, layers, norm, head } = parameters;
        let positions: Vec<usize> =
            batch.spans.iter().flat_map(|span| span.first_position..span.first_position + span.tokens).collect();
        let mut shared = backend.begin_step(batch, shape.rope.angles(positions.into_iter()));
        backend.embed(embedding, &batch.token_ids, &mut workspace.hidden);
        for (layer, cache) in layers.iter().zip(caches) {
            let Workspace { hidden, wide, input, attended, .. } = &mut *workspace;
            backend.norm(hidden, &layer.attention_norm, shape.epsilon, input);
            backend.linear(input, &layer.qkv, layer.qkv_bias.as_ref(), wide);
            let (heads, kv_heads) = (shape.heads, shape.kv_heads);
            if let (Some(query), Some(key)) = (&layer.query_norm, &layer.key_norm) {
                backend.head_norm(wide, 0..heads, query, shape.epsilon);
                backend.head_norm(wide, heads..heads + kv_heads, key, shape.epsilon);
            }
            if layer.shape.rotary {
                backend.rotate(wide, heads + kv_heads, shape.head_dim, &shared);
            }
            backend.write_cache(wide, heads * shape.head_dim, cache, &mut shared);
            #[expect(clippy::cast_precision_loss, reason = "heads are small")]
            let scale = 1.0 / (shape.head_dim as f32).sqrt();
            let attention = AttentionShape { heads, scale, window: layer.shape.window };
            backend.attend(wide, cache, attention, &shared, attended);
            backend.add_linear(attended, &layer.output, layer.output_bias.as_ref(), hidden);
            backend.norm(hidden, &layer.mlp_norm, shape.epsilon, input);
            layer.mlp.forward(backend, workspace);
        }
        if batch.logit_rows.is_empty() {
            return backend.finite(shared);
        }
        let Workspace { hidden, input, picked, .. } = &mut *workspace;
        backend.norm(hidden, norm, shape.epsilon, input);
        backend.gather(input, &batch.logit_rows, picked);
        let head = head.as_ref().unwrap_or(embedding);
        for first in (0..batch.logit_rows.len()).step_by(LOGIT_ROWS) {
            let rows: Range<usize> = first..batch.logit_rows.len().min(first + LOGIT_ROWS);
            backend.logits(picked, rows, head, consumer);
        }
        backend.finite(shared)
    }
}

impl<B: Backend> Parameters<B> {
    fn zeros(backend: &B, shape: &ModelShape) -> Result<Self, NoRoom> {
        let matrix = || backend.matrix(shape.vocab_size, shape.hidden);
        Ok(Self {
            embedding: matrix()?,
            layers: shape.layers.iter().map(|layer| Layer::zeros(backend, shape, layer)).collect::<Result<_, _>>()?,
            norm: backend.vector(shape.hidden)?,
            head: (!shape.tied).then(matrix).transpose()?,
        })
    }
}

impl<B: Backend> Layer<B> {
    fn zeros(backend: &B, shape: &ModelShape, layer: &LayerShape) -> Result<Self, NoRoom> {
        let (q, hidden) = (shape.heads * shape.head_dim, shape.hidden);
        let bias = |given: bool, len| given.then(|| backend.vector(len)).transpose();
        let dense = |intermediate| Dense::zeros(backend, shape, intermediate);
        let mlp = match layer.mlp {
            MlpShape::Dense { intermediate } => Mlp::Dense(dense(intermediate)?),
            MlpShape::Sparse { experts, per_token, intermediate, normalize } => Mlp::Sparse {
                router: backend.matrix(experts, hidden)?,
                experts: (0..experts).map(|_| dense(intermediate)).collect::<Result<_, _>>()?,
                per_token,
                normalize,
            },
        };
        Ok(Self {
            shape: layer.clone(),
            attention_norm: backend.vector(hidden)?,
            qkv: backend.matrix(shape.qkv_width(), hidden)?,
            qkv_bias: bias(shape.qkv_bias, shape.qkv_width())?,
            query_norm: bias(shape.head_norms, shape.head_dim)?,
            key_norm: bias(shape.head_norms, shape.head_dim)?,
            output: backend.matrix(hidden, q)?,
            output_bias: bias(shape.output_bias, hidden)?,
            mlp_norm: backend.vector(hidden)?,
            mlp,
        })
    }
}

impl<B: Backend> Dense<B> {
    fn zeros(backend: &B, shape: &ModelShape, intermediate: usize) -> Result<Self, NoRoom> {
        let bias = |len| shape.mlp_bias.then(|| backend.vector(len)).transpose();
        Ok(Self {
            intermediate,
            gate_up: backend.matrix(2 * intermediate, shape.hidden)?,
            gate_up_bias: bias(2 * intermediate)?,
            down: backend.matrix(shape.hidden, intermediate)?,
            down_bias: bias(shape.hidden)?,
        })
    }
}

impl<B: Backend> Mlp<B> {
    /// Adds its output for `input` to `hidden`.
    fn forward(&self, backend: &mut B, workspace: &mut Workspace<B>) {
        let Workspace { hidden, wide, expert: out, input, picked, gated, .. } = workspace;
        match self {
            Self::Dense(dense) => {
                backend.linear(input, &dense.gate_up, dense.gate_up_bias.as_ref(), wide);
                backend.gated_silu(wide, dense.intermediate, gated);
                backend.add_linear(gated, &dense.down, dense.down_bias.as_ref(), hidden);
            }
            Self::Sparse { router, experts, per_token, normalize } => {
                backend.linear(input, router, None, wide);
                let scores = backend.read(wide, experts.len());
                // The experts are added in their order, so that the sum of a token's experts does not depend on other
                // tokens.
                for (dense, picks) in experts.iter().zip(route(&scores, experts.len(), *per_token, *normalize)) {
                    if picks.is_empty() {
                        continue;
                    }
                    let rows: Vec<usize> = picks.iter().map(|(row, _)| *row).collect();
                    backend.gather(input, &rows, picked);
                    backend.linear(picked, &dense.gate_up, dense.gate_up_bias.as_ref(), wide);
                    backend.gated_silu(wide, dense.intermediate, gated);
                    backend.linear(gated, &dense.down, dense.down_bias.as_ref(), out);
                    backend.add_scaled(out, &picks, hidden);
                }
            }
        }
    }
}

/// Lists for each expert the rows that go through it, with the expert's weight.
fn route(scores: &[f32], experts: usize, per_token: usize, normalize: bool) -> Vec<Vec<(usize, f32)>> {
    let mut picks = vec![Vec::new(); experts];
    for (row, scores) in scores.chunks_exact(experts).enumerate() {
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| (score - max).exp()).collect();
        let total: f32 = weights.iter().sum();
        let mut order: Vec<usize> = (0..experts).collect();
        order.sort_by(|left, right| weights[*right].total_cmp(&weights[*left]).then(left.cmp(right)));
        order.truncate(per_token);
        let chosen: f32 = order.iter().map(|expert| weights[*expert]).sum();
        for expert in order {
            picks[expert].push((row, weights[expert] / if normalize { chosen } else { total }));
        }
    }
    picks
}

impl<B: Backend> Workspace<B> {
    fn new(backend: &B) -> Self {
        Self {
            hidden: B::States::default(),
            wide: B::States::default(),
            expert: B::States::default(),
            input: backend.operand(),
            picked: backend.operand(),
            attended: backend.operand(),
            gated: backend.operand(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
