//! Inputs of single layers: numbers of a token that each layer has of its own, besides the residual stream.
//!
//! As `modeling_gemma4.py` of transformers defines them.

use std::f32::consts::FRAC_1_SQRT_2;

use super::{
    adapters::Weight,
    destinations::{Destination, InLayer},
    shape::{InputShape, ModelShape},
    workspace::Workspace,
};
use crate::{
    TokenId,
    engine::native::backend::{Backend, HeadRange, NoRoom, NormShape},
};

/// What makes the inputs of all layers.
pub(super) struct Inputs<B: Backend> {
    shape: InputShape,
    norm: NormShape,
    hidden: usize,
    layers: usize,
    pub(super) embedding: B::Matrix,
    pub(super) projection: B::Matrix,
    pub(super) projection_norm: B::Vector,
}

/// What a layer makes of its own.
pub(super) struct LayerInput<B: Backend> {
    shape: InputShape,
    norm: NormShape,
    hidden: usize,
    pub(super) gate: Weight<B>,
    pub(super) projection: Weight<B>,
    pub(super) after: B::Vector,
}

#[expect(clippy::cast_precision_loss, reason = "states are narrow")]
fn root(width: usize) -> f32 {
    (width as f32).sqrt()
}

impl<B: Backend> Inputs<B> {
    pub(super) fn zeros(backend: &B, model: &ModelShape, shape: InputShape) -> Result<Self, NoRoom> {
        let (hidden, layers) = (model.hidden, model.layers.len());
        Ok(Self {
            shape,
            norm: model.norm,
            hidden,
            layers,
            embedding: backend.matrix(shape.vocab_size, layers * shape.width)?,
            projection: backend.matrix(layers * shape.width, hidden)?,
            projection_norm: backend.vector(shape.width)?,
        })
    }

    /// Makes the inputs of all layers of tokens and their embeddings, which are in the residual stream.
    pub(super) fn make(&self, backend: &mut B, token_ids: &[TokenId], workspace: &mut Workspace<B>) {
        let (layers, width) = (self.layers, self.shape.width);
        let Workspace { hidden, wide, input, inputs, adapters, .. } = workspace;
        backend.round(hidden, 0..self.hidden, input);
        backend.linear(input, &self.projection, None, wide);
        adapters.add(backend, Destination::InputProjection, input, wide);
        backend.scale(wide, 0..layers * width, 1.0 / root(self.hidden));
        backend.head_norm(wide, HeadRange { first: 0, count: layers, width }, &self.projection_norm, self.norm);
        backend.embed(&self.embedding, token_ids, root(width), inputs);
        adapters.add_embeddings(backend, Destination::InputEmbedding, (token_ids, root(width)), inputs);
        backend.add(wide, 1.0, inputs);
        backend.scale(inputs, 0..layers * width, FRAC_1_SQRT_2);
    }
}

impl<B: Backend> LayerInput<B> {
    pub(super) fn zeros(backend: &B, model: &ModelShape, shape: InputShape) -> Result<Self, NoRoom> {
        let hidden = model.hidden;
        Ok(Self {
            shape,
            norm: model.norm,
            hidden,
            gate: Weight::zeros(backend, InLayer::InputGate, shape.width, hidden)?,
            projection: Weight::zeros(backend, InLayer::InputProjection, hidden, shape.width)?,
            after: backend.vector(hidden)?,
        })
    }

    /// Adds to the residual stream what the gate of the layer of this number lets through.
    pub(super) fn add(&self, backend: &mut B, number: usize, workspace: &mut Workspace<B>) {
        let InputShape { width, gate, .. } = self.shape;
        let Workspace { hidden, wide, out, input, gated, inputs, adapters, .. } = workspace;
        backend.round(hidden, 0..self.hidden, input);
        adapters.linear(backend, input, &self.gate, None, out);
        backend.zeros(out, 2 * width, wide);
        backend.place(out, 0..width, wide, 0);
        backend.place(inputs, number * width..(number + 1) * width, wide, width);
        backend.gate(wide, gate, width, gated);
        adapters.linear(backend, gated, &self.projection, None, out);
        backend.head_norm(out, HeadRange::whole(self.hidden), &self.after, self.norm);
        backend.add(out, 1.0, hidden);
    }
}
