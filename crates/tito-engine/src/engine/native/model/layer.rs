//! One layer: its parameters, and the order of its parts.

use super::{
    adapters::{Adapters, Weight},
    attention::Attention,
    both::Both,
    dense::Dense,
    destinations::InLayer,
    inputs::LayerInput,
    mixture::Sparse,
    recurrent::Recurrent,
    shape::{LayerShape, MlpShape, ModelShape, NormPlaces, PartFactors},
    workspace::Workspace,
};
use crate::engine::native::backend::{Backend, HeadRange, NoRoom, NormShape};

/// What a layer has learnt. What not every layer has is `None` where it is not there.
pub(super) struct Layer<B: Backend> {
    /// The factor of what the parts add to a state.
    residual_factor: f32,
    factors: PartFactors,
    norm: NormShape,
    /// Numbers of a state.
    hidden: usize,
    /// Whether the feed-forward part reads what attention reads.
    is_parallel: bool,
    pub(super) attention_norm: Option<B::Vector>,
    pub(super) after_attention_norm: Option<B::Vector>,
    pub(super) attention: Option<Attention<B>>,
    pub(super) recurrent: Option<Recurrent<B>>,
    pub(super) mlp_norm: Option<B::Vector>,
    pub(super) after_mlp_norm: Option<B::Vector>,
    pub(super) mlp: Option<Mlp<B>>,
    pub(super) input: Option<LayerInput<B>>,
    /// The factor of the state at the end of the layer.
    pub(super) scalar: Option<B::Vector>,
}

/// A feed-forward part.
pub(super) enum Mlp<B: Backend> {
    Dense(Dense<B>),
    Sparse(Sparse<B>),
    Both(Both<B>),
}

/// What a layer keeps of the sequences: keys and values, and recurrent states, where it has them.
pub(super) struct Past<'a, B: Backend> {
    pub(super) cache: Option<&'a mut B::Cache>,
    pub(super) state: Option<&'a mut B::Recurrent>,
}

/// `(weight * input (+ bias)) * factor`.
struct Product<'a, B: Backend> {
    input: &'a B::Operand,
    weight: &'a Weight<B>,
    bias: Option<&'a B::Vector>,
    factor: f32,
}

impl<B: Backend> Layer<B> {
    pub(super) fn zeros(backend: &B, model: &ModelShape, shape: &LayerShape) -> Result<Self, NoRoom> {
        let hidden = model.hidden;
        let vector = |given: bool| given.then(|| backend.vector(hidden)).transpose();
        let (before, before_mlp, after) = (shape.norms.before(), shape.norms.before_mlp(), shape.norms.after());
        let (mixes, has_mlp) = (shape.mixes(), shape.mlp.is_some());
        let attention = |attention| Attention::zeros(backend, hidden, model.norm, attention);
        Ok(Self {
            residual_factor: shape.residual_factor,
            factors: shape.factors,
            norm: model.norm,
            hidden,
            is_parallel: shape.norms == NormPlaces::Shared,
            attention_norm: vector(mixes && before)?,
            after_attention_norm: vector(mixes && after)?,
            attention: shape.attention.as_ref().map(attention).transpose()?,
            recurrent: shape.recurrent.as_ref().map(|part| Recurrent::zeros(backend, hidden, part)).transpose()?,
            mlp_norm: vector(has_mlp && before_mlp)?,
            after_mlp_norm: vector(has_mlp && after)?,
            mlp: shape.mlp.as_ref().map(|mlp| Mlp::zeros(backend, model, mlp)).transpose()?,
            input: model.inputs.map(|input| LayerInput::zeros(backend, model, input)).transpose()?,
            scalar: shape.scaled.then(|| backend.vector(1)).transpose()?,
        })
    }

    /// Whether all operations of the layer, and what they are given, follow from the shape of a step: the host computes nothing
    /// of it and reads no number, and every operation is one that backends have for itself.
    pub(super) fn follows_from_shape(&self) -> bool {
        let has_norms = self.attention_norm.is_some() && (self.mlp_norm.is_some() || self.is_parallel);
        let nothing_else = self.recurrent.is_none() && self.input.is_none() && self.scalar.is_none();
        let attends = self.attention.as_ref().is_some_and(Attention::follows_from_shape);
        let feeds = match &self.mlp {
            Some(Mlp::Dense(dense)) => dense.follows_from_shape(),
            Some(Mlp::Sparse(sparse)) => sparse.follows_from_shape() && self.after_mlp_norm.is_none(),
            Some(Mlp::Both(_)) | None => false,
        };
        has_norms && nothing_else && self.factors == PartFactors::ONES && attends && feeds
    }

    /// Adds what attention and the part with a recurrent state give to the residual stream; both read the same of it.
    pub(super) fn mix(
        &self,
        backend: &mut B,
        workspace: &mut Workspace<B>,
        past: Past<'_, B>,
        shared: &mut B::StepShared,
    ) {
        if self.attention.is_some() || self.recurrent.is_some() {
            self.enter(backend, self.attention_norm.as_ref(), workspace);
        }
        let norm = self.after_attention_norm.as_ref();
        if let (Some(attention), Some(cache)) = (&self.attention, past.cache) {
            attention.attend(backend, self.factors, workspace, cache, shared);
            let (bias, factor) = (attention.output_bias.as_ref(), self.factors.attention_output);
            let Workspace { hidden, out, attended, adapters, .. } = workspace;
            let product = Product { input: attended, weight: &attention.output, bias, factor };
            self.leave(backend, adapters, product, norm, (out, hidden));
        }
        if let (Some(recurrent), Some(state)) = (&self.recurrent, past.state) {
            recurrent.mix(backend, self.factors.scan, workspace, state, shared);
            let (bias, factor) = (recurrent.output_bias.as_ref(), self.factors.recurrent_output);
            let Workspace { hidden, out, attended, adapters, .. } = workspace;
            let product = Product { input: attended, weight: &recurrent.output, bias, factor };
            self.leave(backend, adapters, product, norm, (out, hidden));
        }
    }

    /// Adds the feed-forward part to the residual stream.
    pub(super) fn feed_forward(&self, backend: &mut B, workspace: &mut Workspace<B>) {
        let Some(mlp) = &self.mlp else { return };
        let norm = self.norm;
        if !self.is_parallel {
            self.enter(backend, self.mlp_norm.as_ref(), workspace);
        }
        let factor = self.residual_factor;
        match (mlp, self.after_mlp_norm.as_ref()) {
            (Mlp::Dense(dense), after) => {
                let Workspace { hidden, wide, out, input, gated, adapters, .. } = workspace;
                dense.gate(backend, adapters, (input, self.factors.gates), wide, gated);
                let (bias, factor) = (dense.down_bias.as_ref(), self.factors.mlp_output);
                let down = Product { input: gated, weight: &dense.down, bias, factor };
                self.leave(backend, adapters, down, after, (out, hidden));
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
                backend.head_norm(&mut sum, HeadRange::whole(self.hidden), weight, norm);
                backend.add(&sum, factor, &mut workspace.hidden);
                workspace.sum = sum;
            }
            (Mlp::Both(both), after) => {
                let mut sum = std::mem::take(&mut workspace.sum);
                both.make(backend, workspace, &mut sum);
                if let Some(weight) = after {
                    backend.head_norm(&mut sum, HeadRange::whole(self.hidden), weight, norm);
                }
                backend.add(&sum, factor, &mut workspace.hidden);
                workspace.sum = sum;
            }
        }
    }

    /// What is done at the end of the layer of this number.
    pub(super) fn finish(&self, backend: &mut B, number: usize, workspace: &mut Workspace<B>) {
        if let Some(input) = &self.input {
            input.add(backend, number, workspace);
        }
        if let Some(scalar) = &self.scalar {
            for factor in backend.read_vector(scalar) {
                backend.scale(&mut workspace.hidden, 0..self.hidden, factor);
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
        adapters: &mut Adapters<B>,
        Product { input, weight, bias, factor }: Product<'_, B>,
        norm: Option<&B::Vector>,
        (out, hidden): (&mut B::States, &mut B::States),
    ) {
        let factor = self.residual_factor * factor;
        if norm.is_none() && factor.to_bits() == 1.0_f32.to_bits() {
            return adapters.add_linear(backend, input, weight, bias, hidden);
        }
        adapters.linear(backend, input, weight, bias, out);
        if let Some(weight) = norm {
            backend.head_norm(out, HeadRange::whole(self.hidden), weight, self.norm);
        }
        backend.add(out, factor, hidden);
    }
}

impl<B: Backend> Mlp<B> {
    fn zeros(backend: &B, model: &ModelShape, shape: &MlpShape) -> Result<Self, NoRoom> {
        let (hidden, norm) = (model.hidden, model.norm);
        match shape {
            MlpShape::Dense(dense) => Dense::zeros(backend, InLayer::Dense, hidden, *dense).map(Self::Dense),
            MlpShape::Sparse(sparse) => Sparse::zeros(backend, (hidden, norm), sparse).map(Self::Sparse),
            MlpShape::Both(dense, sparse) => Both::zeros(backend, model, *dense, sparse).map(Self::Both),
        }
    }
}
