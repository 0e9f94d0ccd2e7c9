//! Attention: its parameters, and the order of its operations.

use super::{
    adapters::Weight,
    destinations::InLayer,
    latent::Latent,
    shape::{AttentionLayer, HeadNormKind, HeadNorms, LayerRotation, PartFactors},
    workspace::Workspace,
};
use crate::engine::native::backend::{Backend, HeadPreparation, HeadRange, NoRoom, NormShape, Rotation};

/// What attention has learnt.
pub(super) struct Attention<B: Backend> {
    shape: AttentionLayer,
    norm: NormShape,
    pub(super) projection: Projection<B>,
    /// What makes the gates of what the heads give.
    pub(super) gate: Option<Weight<B>>,
    pub(super) gate_bias: Option<B::Vector>,
    pub(super) sinks: Option<B::Vector>,
    pub(super) output: Weight<B>,
    pub(super) output_bias: Option<B::Vector>,
}

/// What makes queries, keys and values.
pub(super) enum Projection<B: Backend> {
    Heads(Heads<B>),
    Latent(Latent<B>),
}

/// Queries, keys and values by one matrix.
pub(super) struct Heads<B: Backend> {
    pub(super) qkv: Weight<B>,
    pub(super) qkv_bias: Option<B::Vector>,
    pub(super) query_norm: Option<B::Vector>,
    pub(super) key_norm: Option<B::Vector>,
    value_norm: Option<B::Vector>,
}

impl<B: Backend> Attention<B> {
    pub(super) fn zeros(backend: &B, hidden: usize, norm: NormShape, shape: &AttentionLayer) -> Result<Self, NoRoom> {
        let vector = |given: bool, len| given.then(|| backend.vector(len)).transpose();
        let width = shape.output_width();
        Ok(Self {
            shape: shape.clone(),
            norm,
            projection: match shape.latent {
                Some(latent) => Projection::Latent(Latent::zeros(backend, hidden, latent, shape.shape.heads)?),
                None => Projection::Heads(Heads::zeros(backend, hidden, shape)?),
            },
            gate: shape.gated.then(|| Weight::zeros(backend, InLayer::Gate(0), width, hidden)).transpose()?,
            gate_bias: vector(shape.gated && shape.qkv_bias, width)?,
            sinks: vector(shape.sinks, shape.shape.heads)?,
            output: Weight::zeros(backend, InLayer::Output, hidden, width)?,
            output_bias: vector(shape.output_bias, hidden)?,
        })
    }

    /// Has every row of the input attend to its sequence; what the heads give is in `attended` then.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    pub(super) fn attend(
        &self,
        backend: &mut B,
        factors: PartFactors,
        workspace: &mut Workspace<B>,
        cache: &mut B::Cache,
        shared: &mut B::StepShared,
    ) {
        let shape = &self.shape;
        match &self.projection {
            Projection::Heads(heads) => heads.project(backend, shape, workspace),
            Projection::Latent(latent) => latent.project(backend, workspace),
        }
        let wide = &mut workspace.wide;
        let (queries, keys) = (shape.query_width(), shape.query_width() + shape.key_width());
        for (columns, factor) in [
            (0..queries, factors.attention),
            (queries..keys, factors.keys),
            (keys..keys + shape.key_width(), factors.attention),
        ] {
            // A layer that attends to the keys of another has no columns for its own.
            if factor.to_bits() != 1.0_f32.to_bits() {
                backend.scale(wide, columns, factor);
            }
        }
        let (sinks, attended) = (self.sinks.as_ref(), &mut workspace.attended);
        if let Some(preparation) = self.preparation() {
            backend.prepare_and_attend(wide, &preparation, cache, shape.shape, sinks, shared, attended);
        } else {
            self.prepare_one_by_one(backend, wide, cache, shared);
            backend.attend(wide, cache, shape.shape, sinks, shared, attended);
        }
        if let Projection::Latent(latent) = &self.projection {
            latent.widen(backend, workspace);
        }
        if let Some(gate) = &self.gate {
            let Workspace { input, sum: gates, attended, adapters, .. } = workspace;
            adapters.linear(backend, input, gate, self.gate_bias.as_ref(), gates);
            backend.open(gates, attended);
        }
    }

    /// Whether it is what most models do, so that nothing but the shape of a step decides what is computed.
    pub(super) fn follows_from_shape(&self) -> bool {
        self.preparation().is_some() && self.gate.is_none() && !self.shape.values_are_keys
    }

    /// What makes heads ready for attention, where it is what most models do: norms that all heads share, one rotation of
    /// queries and keys after it, and keys and values of the layer's own.
    fn preparation(&self) -> Option<HeadPreparation<'_, B::Vector>> {
        let Self { shape, norm, .. } = self;
        let Projection::Heads(Heads { query_norm, key_norm, value_norm: None, .. }) = &self.projection else {
            return None;
        };
        let is_usual = |norms: HeadNorms| norms.kind == HeadNormKind::Alike && !norms.after_rotation && !norm.centred;
        let rotation = shape.rotation.filter(|rotation| rotation.queries == rotation.keys)?;
        if !shape.head_norms.is_none_or(is_usual) || shape.growth.is_some() || shape.shares.is_some() {
            return None;
        }
        let (heads, kept) = (shape.shape.heads, shape.kept);
        let LayerRotation { queries: angles, neighbours, .. } = rotation;
        Some(HeadPreparation {
            heads,
            kept,
            norms: [query_norm.as_ref(), key_norm.as_ref()],
            norm: *norm,
            rotation: Rotation { first: 0, heads: heads + kept.heads, head_dim: kept.head_dim, neighbours, angles },
        })
    }

    /// Makes heads ready for attention, operation by operation.
    fn prepare_one_by_one(
        &self,
        backend: &mut B,
        wide: &mut B::States,
        cache: &mut B::Cache,
        shared: &mut B::StepShared,
    ) {
        let shape = &self.shape;
        let after_rotation = shape.head_norms.is_some_and(|norms| norms.after_rotation);
        if !after_rotation {
            self.norm_heads(backend, wide);
        }
        if let Some(rotation) = shape.rotation {
            self.rotate(backend, rotation, wide, shared);
        }
        if after_rotation {
            self.norm_heads(backend, wide);
        }
        if let Some(angles) = shape.growth {
            let (heads, head_dim) = (shape.shape.heads, shape.kept.head_dim);
            backend.rotate(wide, Rotation { first: 0, heads, head_dim, neighbours: false, angles }, shared);
        }
        if shape.shares.is_none() {
            backend.write_cache(wide, shape.query_width(), cache, shared);
        }
    }

    fn norm_heads(&self, backend: &mut B, wide: &mut B::States) {
        let mut norm = self.norm;
        let Projection::Heads(Heads { query_norm, key_norm, value_norm, .. }) = &self.projection else { return };
        let Some(norms) = self.shape.head_norms else { return };
        // The vector stays 0, and a weight of 1 is none.
        let plain = NormShape { offset: 1.0, ..norm };
        if norms.kind == HeadNormKind::Plain {
            norm = plain;
        }
        let (heads, kv_heads, width) = (self.shape.shape.heads, self.shape.kept.heads, self.shape.kept.head_dim);
        let [queries, keys] = match norms.kind {
            // Keys begin after as many vectors of their length as there are queries to a key.
            HeadNormKind::Whole => [
                HeadRange::whole(heads * width),
                HeadRange { first: heads / kv_heads, count: 1, width: kv_heads * width },
            ],
            HeadNormKind::Alike | HeadNormKind::Each | HeadNormKind::Plain => {
                [HeadRange { first: 0, count: heads, width }, HeadRange { first: heads, count: kv_heads, width }]
            }
        };
        let values = HeadRange { first: heads + kv_heads, count: kv_heads, width };
        for (range, weight, norm) in [(queries, query_norm, norm), (keys, key_norm, norm), (values, value_norm, plain)]
        {
            if let Some(weight) = weight {
                backend.head_norm(wide, range, weight, norm);
            }
        }
    }

    fn rotate(&self, backend: &mut B, rotation: LayerRotation, wide: &mut B::States, shared: &B::StepShared) {
        let (heads, kept) = (self.shape.shape.heads, self.shape.kept);
        let LayerRotation { queries, keys, neighbours } = rotation;
        let mut turn = |first, heads, angles| {
            backend.rotate(wide, Rotation { first, heads, head_dim: kept.head_dim, neighbours, angles }, shared);
        };
        if self.shape.shares.is_some() {
            turn(0, heads, queries);
        } else if queries == keys {
            turn(0, heads + kept.heads, queries);
        } else {
            turn(0, heads, queries);
            turn(heads, kept.heads, keys);
        }
    }
}

impl<B: Backend> Heads<B> {
    fn zeros(backend: &B, hidden: usize, attention: &AttentionLayer) -> Result<Self, NoRoom> {
        let vector = |given: bool, len| given.then(|| backend.vector(len)).transpose();
        let widths = attention.head_norms.map(|norms| attention.norm_widths(norms));
        let (query_width, key_width) = widths.unwrap_or_default();
        let (width, own) = (attention.made_width(), attention.shares.is_none());
        Ok(Self {
            qkv: Weight::zeros(backend, InLayer::Qkv(0), width, hidden)?,
            qkv_bias: vector(attention.qkv_bias, width)?,
            query_norm: vector(widths.is_some(), query_width)?,
            key_norm: vector(widths.is_some() && own, key_width)?,
            value_norm: vector(attention.value_norms && own, attention.kept.head_dim)?,
        })
    }

    /// Makes queries of the input, and keys and values where the layer has its own.
    fn project(&self, backend: &mut B, shape: &AttentionLayer, workspace: &mut Workspace<B>) {
        let Workspace { wide, out, input, adapters, .. } = workspace;
        let bias = self.qkv_bias.as_ref();
        if shape.shares.is_some() || !shape.values_are_keys {
            return adapters.linear(backend, input, &self.qkv, bias, wide);
        }
        let (queries, made) = (shape.query_width(), shape.made_width());
        adapters.linear(backend, input, &self.qkv, bias, out);
        backend.zeros(out, shape.qkv_width(), wide);
        backend.place(out, 0..made, wide, 0);
        backend.place(out, queries..made, wide, made);
    }
}
