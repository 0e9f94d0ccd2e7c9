//! One layer: its parameters, and the order of its operations.

use super::{
    dense::Dense,
    latent::Latent,
    mixture::Sparse,
    shape::{AttentionLayer, LayerRotation, LayerShape, MlpShape, ModelShape},
    workspace::Workspace,
};
use crate::engine::native::backend::{Backend, NoRoom, NormShape, Rotation};

/// What a layer has learnt. What not every layer has is `None` where it is not there.
pub(super) struct Layer<B: Backend> {
    shape: LayerShape,
    norm: NormShape,
    /// Numbers of a state.
    hidden: usize,
    pub(super) attention_norm: Option<B::Vector>,
    pub(super) after_attention_norm: Option<B::Vector>,
    pub(super) projection: Projection<B>,
    pub(super) sinks: Option<B::Vector>,
    pub(super) output: B::Matrix,
    pub(super) output_bias: Option<B::Vector>,
    pub(super) mlp_norm: Option<B::Vector>,
    pub(super) after_mlp_norm: Option<B::Vector>,
    pub(super) mlp: Mlp<B>,
}

/// What makes queries, keys and values.
pub(super) enum Projection<B: Backend> {
    Heads(Heads<B>),
    Latent(Latent<B>),
}

/// Queries, keys and values by one matrix.
pub(super) struct Heads<B: Backend> {
    pub(super) qkv: B::Matrix,
    pub(super) qkv_bias: Option<B::Vector>,
    pub(super) query_norm: Option<B::Vector>,
    pub(super) key_norm: Option<B::Vector>,
}

/// A feed-forward part.
pub(super) enum Mlp<B: Backend> {
    Dense(Dense<B>),
    Sparse(Sparse<B>),
}

/// `matrix * input (+ bias)`.
struct Product<'a, B: Backend> {
    input: &'a B::Operand,
    matrix: &'a B::Matrix,
    bias: Option<&'a B::Vector>,
}

impl<B: Backend> Layer<B> {
    pub(super) fn zeros(backend: &B, model: &ModelShape, shape: &LayerShape) -> Result<Self, NoRoom> {
        let hidden = model.hidden;
        let vector = |given: bool, len| given.then(|| backend.vector(len)).transpose();
        let (attention, norms) = (&shape.attention, shape.norms);
        Ok(Self {
            shape: shape.clone(),
            norm: model.norm,
            hidden,
            attention_norm: vector(norms.before(), hidden)?,
            after_attention_norm: vector(norms.after(), hidden)?,
            projection: match attention.latent {
                Some(latent) => Projection::Latent(Latent::zeros(backend, hidden, latent, attention.shape.heads)?),
                None => Projection::Heads(Heads::zeros(backend, hidden, attention)?),
            },
            sinks: vector(attention.sinks, attention.shape.heads)?,
            output: backend.matrix(hidden, attention.output_width())?,
            output_bias: vector(attention.output_bias, hidden)?,
            mlp_norm: vector(norms.before(), hidden)?,
            after_mlp_norm: vector(norms.after(), hidden)?,
            mlp: match &shape.mlp {
                MlpShape::Dense(dense) => Mlp::Dense(Dense::zeros(backend, hidden, *dense)?),
                MlpShape::Sparse(sparse) => Mlp::Sparse(Sparse::zeros(backend, hidden, sparse)?),
            },
        })
    }

    /// Adds attention to the residual stream.
    pub(super) fn attend(
        &self,
        backend: &mut B,
        workspace: &mut Workspace<B>,
        cache: &mut B::Cache,
        shared: &mut B::StepShared,
    ) {
        let attention = &self.shape.attention;
        self.enter(backend, self.attention_norm.as_ref(), workspace);
        match &self.projection {
            Projection::Heads(heads) => {
                backend.linear(&workspace.input, &heads.qkv, heads.qkv_bias.as_ref(), &mut workspace.wide);
            }
            Projection::Latent(latent) => latent.project(backend, workspace),
        }
        let wide = &mut workspace.wide;
        let after_rotation = attention.head_norms.is_some_and(|norms| norms.after_rotation);
        if !after_rotation {
            self.norm_heads(backend, wide);
        }
        if let Some(rotation) = attention.rotation {
            self.rotate(backend, rotation, wide, shared);
        }
        if after_rotation {
            self.norm_heads(backend, wide);
        }
        backend.write_cache(wide, attention.query_width(), cache, shared);
        backend.attend(wide, cache, attention.shape, self.sinks.as_ref(), shared, &mut workspace.attended);
        if let Projection::Latent(latent) = &self.projection {
            latent.widen(backend, workspace);
        }
        let Workspace { hidden, out, attended, .. } = workspace;
        let output = Product { input: attended, matrix: &self.output, bias: self.output_bias.as_ref() };
        self.leave(backend, output, self.after_attention_norm.as_ref(), out, hidden);
    }

    /// Adds the feed-forward part to the residual stream.
    pub(super) fn feed_forward(&self, backend: &mut B, workspace: &mut Workspace<B>) {
        let norm = self.norm;
        self.enter(backend, self.mlp_norm.as_ref(), workspace);
        let factor = self.shape.residual_factor;
        match (&self.mlp, self.after_mlp_norm.as_ref()) {
            (Mlp::Dense(dense), after) => {
                let Workspace { hidden, wide, out, input, gated, .. } = workspace;
                dense.gate(backend, input, wide, gated);
                let down = Product { input: gated, matrix: &dense.down, bias: dense.down_bias.as_ref() };
                self.leave(backend, down, after, out, hidden);
            }
            (Mlp::Sparse(sparse), None) => {
                let mut sum = std::mem::take(&mut workspace.hidden);
                sparse.add(backend, factor, workspace, &mut sum);
                workspace.hidden = sum;
            }
            (Mlp::Sparse(sparse), Some(weight)) => {
                let mut sum = std::mem::take(&mut workspace.sum);
                backend.zeros(&workspace.hidden, self.hidden, &mut sum);
                sparse.add(backend, 1.0, workspace, &mut sum);
                backend.head_norm(&mut sum, 0..1, weight, norm);
                backend.add(&sum, factor, &mut workspace.hidden);
                workspace.sum = sum;
            }
        }
    }

    /// What a part of the layer reads of the residual stream.
    fn enter(&self, backend: &mut B, weight: Option<&B::Vector>, workspace: &mut Workspace<B>) {
        let Workspace { hidden, input, .. } = workspace;
        match weight {
            Some(weight) => backend.norm(hidden, weight, self.norm, input),
            None => backend.round(hidden, 0..self.hidden, input),
        }
    }

    /// Adds a product to the residual stream, normalised where the layer has a norm for it, times the layer's factor.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    fn leave(
        &self,
        backend: &mut B,
        Product { input, matrix, bias }: Product<'_, B>,
        norm: Option<&B::Vector>,
        out: &mut B::States,
        hidden: &mut B::States,
    ) {
        let factor = self.shape.residual_factor;
        if norm.is_none() && factor.to_bits() == 1.0_f32.to_bits() {
            return backend.add_linear(input, matrix, bias, hidden);
        }
        backend.linear(input, matrix, bias, out);
        if let Some(weight) = norm {
            backend.head_norm(out, 0..1, weight, self.norm);
        }
        backend.add(out, factor, hidden);
    }

    fn norm_heads(&self, backend: &mut B, wide: &mut B::States) {
        let (attention, norm) = (&self.shape.attention, self.norm);
        let Projection::Heads(Heads { query_norm: Some(query), key_norm: Some(key), .. }) = &self.projection else {
            return;
        };
        let Some(norms) = attention.head_norms else { return };
        let (heads, kv_heads) = (attention.shape.heads, attention.kept.heads);
        if norms.whole {
            // Keys begin after as many vectors of their length as there are queries to a key.
            let first = heads / kv_heads;
            backend.head_norm(wide, 0..1, query, norm);
            backend.head_norm(wide, first..first + 1, key, norm);
        } else {
            backend.head_norm(wide, 0..heads, query, norm);
            backend.head_norm(wide, heads..heads + kv_heads, key, norm);
        }
    }

    fn rotate(&self, backend: &mut B, rotation: LayerRotation, wide: &mut B::States, shared: &B::StepShared) {
        let attention = &self.shape.attention;
        let (heads, kv_heads, head_dim) = (attention.shape.heads, attention.kept.heads, attention.kept.head_dim);
        let LayerRotation { queries, keys, neighbours } = rotation;
        let mut turn = |first, heads, angles| {
            backend.rotate(wide, Rotation { first, heads, head_dim, neighbours, angles }, shared);
        };
        if queries == keys {
            turn(0, heads + kv_heads, queries);
        } else {
            turn(0, heads, queries);
            turn(heads, kv_heads, keys);
        }
    }
}

impl<B: Backend> Heads<B> {
    fn zeros(backend: &B, hidden: usize, attention: &AttentionLayer) -> Result<Self, NoRoom> {
        let vector = |given: bool, len| given.then(|| backend.vector(len)).transpose();
        let widths = attention.head_norms.map(|norms| attention.norm_widths(norms));
        let (query_width, key_width) = widths.unwrap_or_default();
        Ok(Self {
            qkv: backend.matrix(attention.qkv_width(), hidden)?,
            qkv_bias: vector(attention.qkv_bias, attention.qkv_width())?,
            query_norm: vector(widths.is_some(), query_width)?,
            key_norm: vector(widths.is_some(), key_width)?,
        })
    }
}
