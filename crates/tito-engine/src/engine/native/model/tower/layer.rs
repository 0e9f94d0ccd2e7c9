//! One layer of a tower.

use super::{
    super::{
        destinations::InTowerLayer,
        shape::TowerShape,
        target::{Target, numbers},
    },
    buffers::Buffers,
    patches::Patches,
};
use crate::engine::native::backend::{Backend, Gate, HeadRange, NoRoom, NormShape, Rotation, SegmentHeads};

/// A norm, with or without a bias.
pub(super) struct Norm<B: Backend> {
    shape: NormShape,
    width: usize,
    pub(super) weight: B::Vector,
    pub(super) bias: Option<B::Vector>,
}

/// What a layer has learnt.
pub(super) struct TowerLayer<B: Backend> {
    heads: SegmentHeads,
    intermediate: usize,
    gate: Gate,
    /// Whether queries and keys are rotated.
    rotates: bool,
    /// Whether patches attend to all others.
    whole: bool,
    attention_norm: Norm<B>,
    qkv: B::Matrix,
    qkv_bias: Option<B::Vector>,
    /// Those of queries and of keys.
    query_key_norms: Option<[Norm<B>; 2]>,
    output: B::Matrix,
    output_bias: Option<B::Vector>,
    mlp_norm: Norm<B>,
    up: B::Matrix,
    up_bias: Option<B::Vector>,
    down: B::Matrix,
    down_bias: Option<B::Vector>,
    /// What multiplies that which attention and the feed-forward part add.
    scales: Option<[B::Vector; 2]>,
}

impl<B: Backend> Norm<B> {
    pub(super) fn zeros(backend: &B, tower: &TowerShape, width: usize) -> Result<Self, NoRoom> {
        Self::of(backend, tower.norm, tower.norm_bias, width)
    }

    /// One of another shape than the tower's.
    pub(super) fn of(backend: &B, shape: NormShape, has_bias: bool, width: usize) -> Result<Self, NoRoom> {
        let bias = has_bias.then(|| backend.vector(width)).transpose()?;
        Ok(Self { shape, width, weight: backend.vector(width)?, bias })
    }

    /// Normalises states into `out`; `scratch` is overwritten.
    pub(super) fn apply(&self, backend: &mut B, states: &B::States, scratch: &mut B::States, out: &mut B::Operand) {
        if self.bias.is_none() {
            return backend.norm(states, &self.weight, self.shape, out);
        }
        backend.zeros(states, self.width, scratch);
        backend.place(states, 0..self.width, scratch, 0);
        self.apply_in_place(backend, scratch);
        backend.round(scratch, 0..self.width, out);
    }

    /// Normalises states in place.
    pub(super) fn apply_in_place(&self, backend: &mut B, states: &mut B::States) {
        backend.head_norm(states, HeadRange::whole(self.width), &self.weight, self.shape);
        if let Some(bias) = &self.bias {
            backend.add_vector(bias, states);
        }
    }
}

impl<B: Backend> TowerLayer<B> {
    pub(super) fn zeros(backend: &B, tower: &TowerShape, whole: bool) -> Result<Self, NoRoom> {
        let (hidden, inner) = (tower.hidden, tower.gate.inputs(tower.intermediate));
        #[expect(clippy::cast_precision_loss, reason = "heads are small")]
        let scale = 1.0 / (tower.head_dim() as f32).sqrt();
        let bias = |count| tower.biases.then(|| backend.vector(count)).transpose();
        let both_norms = |shape| -> Result<_, NoRoom> {
            let norm = || Norm::of(backend, shape, false, hidden);
            Ok([norm()?, norm()?])
        };
        let both_scales = || -> Result<_, NoRoom> { Ok([backend.vector(hidden)?, backend.vector(hidden)?]) };
        Ok(Self {
            heads: SegmentHeads { heads: tower.heads, head_dim: tower.head_dim(), scale },
            intermediate: tower.intermediate,
            gate: tower.gate,
            rotates: tower.theta.is_some(),
            whole,
            attention_norm: Norm::zeros(backend, tower, hidden)?,
            qkv: backend.matrix(3 * hidden, hidden)?,
            qkv_bias: tower.qkv_biases.then(|| backend.vector(3 * hidden)).transpose()?,
            query_key_norms: tower.query_key_norm.map(both_norms).transpose()?,
            output: backend.matrix(hidden, hidden)?,
            output_bias: bias(hidden)?,
            mlp_norm: Norm::zeros(backend, tower, hidden)?,
            up: backend.matrix(inner, hidden)?,
            up_bias: bias(inner)?,
            down: backend.matrix(hidden, tower.intermediate)?,
            down_bias: bias(hidden)?,
            scales: tower.scaled.then(both_scales).transpose()?,
        })
    }

    pub(super) fn target(&mut self, place: InTowerLayer) -> Option<Target<'_, B>> {
        match place {
            InTowerLayer::AttentionNorm => Some(Target::Numbers(&mut self.attention_norm.weight, 0)),
            InTowerLayer::AttentionNormBias => numbers(&mut self.attention_norm.bias, 0),
            InTowerLayer::Qkv(first) => Some(Target::Rows(&mut self.qkv, first)),
            InTowerLayer::QkvBias(first) => numbers(&mut self.qkv_bias, first),
            InTowerLayer::QueryNorm => Some(Target::Numbers(&mut self.query_key_norms.as_mut()?[0].weight, 0)),
            InTowerLayer::KeyNorm => Some(Target::Numbers(&mut self.query_key_norms.as_mut()?[1].weight, 0)),
            InTowerLayer::AttentionScale => Some(Target::Numbers(&mut self.scales.as_mut()?[0], 0)),
            InTowerLayer::MlpScale => Some(Target::Numbers(&mut self.scales.as_mut()?[1], 0)),
            InTowerLayer::Output => Some(Target::Rows(&mut self.output, 0)),
            InTowerLayer::OutputBias => numbers(&mut self.output_bias, 0),
            InTowerLayer::MlpNorm => Some(Target::Numbers(&mut self.mlp_norm.weight, 0)),
            InTowerLayer::MlpNormBias => numbers(&mut self.mlp_norm.bias, 0),
            InTowerLayer::Up(first) => Some(Target::Rows(&mut self.up, first)),
            InTowerLayer::UpBias(first) => numbers(&mut self.up_bias, first),
            InTowerLayer::Down => Some(Target::Rows(&mut self.down, 0)),
            InTowerLayer::DownBias => numbers(&mut self.down_bias, 0),
        }
    }

    /// Adds what attention and the feed-forward part give to the states of all patches.
    pub(super) fn compute(&self, backend: &mut B, patches: &Patches, buffers: &mut Buffers<B>, shared: &B::StepShared) {
        let Buffers { hidden, wide, out, input, gated } = buffers;
        self.attention_norm.apply(backend, hidden, out, input);
        backend.linear(input, &self.qkv, self.qkv_bias.as_ref(), wide);
        let SegmentHeads { heads, head_dim, .. } = self.heads;
        for (first, norm) in self.query_key_norms.iter().flatten().enumerate() {
            let own = HeadRange { first, count: 1, width: heads * head_dim };
            backend.head_norm(wide, own, &norm.weight, norm.shape);
        }
        if self.rotates {
            let rotation = Rotation { first: 0, heads: 2 * heads, head_dim, neighbours: false, angles: 0 };
            backend.rotate(wide, rotation, shared);
        }
        let all = [patches.all()];
        let segments = if self.whole { &all[..] } else { &patches.windows };
        backend.attend_within(wide, self.heads, segments, gated);
        self.add(backend, gated, (&self.output, self.output_bias.as_ref(), 0), (out, hidden));
        self.mlp_norm.apply(backend, hidden, out, input);
        backend.linear(input, &self.up, self.up_bias.as_ref(), wide);
        backend.gate(wide, self.gate, self.intermediate, gated);
        self.add(backend, gated, (&self.down, self.down_bias.as_ref(), 1), (out, hidden));
    }

    /// Adds what a matrix makes of the input to the states, times what is learnt for this part of the layer. Overwrites the
    /// first buffer.
    fn add(
        &self,
        backend: &mut B,
        input: &B::Operand,
        (matrix, bias, part): (&B::Matrix, Option<&B::Vector>, usize),
        (out, hidden): (&mut B::States, &mut B::States),
    ) {
        let Some(scales) = &self.scales else { return backend.add_linear(input, matrix, bias, hidden) };
        backend.linear(input, matrix, bias, out);
        backend.multiply_vector(&scales[part], out);
        backend.add(out, 1.0, hidden);
    }
}
