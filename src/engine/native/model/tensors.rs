//! The tensors of a model under the names that checkpoints give them, and where each goes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    Dense, Layer, Mlp, Model, Parameters,
    config::{LayerShape, MlpShape, ModelShape},
};
use crate::engine::native::{
    backend::Backend,
    weights::{Rows, Weights, WeightsError},
};

/// One of a model's tensors.
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) place: Destination,
}

impl Tensor {
    /// The number of its numbers.
    pub(super) fn numbers(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The tensors of a model, by their order and by name.
pub(super) struct Tensors {
    all: Vec<Arc<Tensor>>,
    numbers: HashMap<String, usize>,
    /// How many tensors share a matrix or vector.
    shares: BTreeMap<Destination, usize>,
    tied: bool,
}

/// Where a tensor goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Destination {
    Embedding,
    Norm,
    Head,
    Layer(usize, InLayer),
}

/// Where a tensor of a layer goes. Where several share a matrix or vector, the number says from which row or number on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InLayer {
    AttentionNorm,
    Qkv(usize),
    QkvBias(usize),
    QueryNorm,
    KeyNorm,
    Output,
    OutputBias,
    MlpNorm,
    Router,
    Dense(InDense),
    Expert(usize, InDense),
}

/// Where a tensor of a feed-forward part goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InDense {
    GateUp(usize),
    GateUpBias(usize),
    Down,
    DownBias,
}

impl Destination {
    /// The whole matrix or vector that the tensor is a part of.
    pub(super) fn whole(self) -> Self {
        match self {
            Self::Layer(layer, place) => Self::Layer(layer, place.whole()),
            whole => whole,
        }
    }

    /// Whether it is numbers of a vector, which every backend holds in f32.
    pub(super) fn is_vector(self) -> bool {
        match self {
            Self::Norm => true,
            Self::Embedding | Self::Head => false,
            Self::Layer(_, place) => place.is_vector(),
        }
    }
}

impl InLayer {
    fn whole(self) -> Self {
        match self {
            Self::Qkv(_) => Self::Qkv(0),
            Self::QkvBias(_) => Self::QkvBias(0),
            Self::Dense(place) => Self::Dense(place.whole()),
            Self::Expert(expert, place) => Self::Expert(expert, place.whole()),
            whole => whole,
        }
    }

    fn is_vector(self) -> bool {
        match self {
            Self::Qkv(_) | Self::Output | Self::Router => false,
            Self::Dense(place) | Self::Expert(_, place) => place.is_vector(),
            Self::AttentionNorm
            | Self::QkvBias(_)
            | Self::QueryNorm
            | Self::KeyNorm
            | Self::OutputBias
            | Self::MlpNorm => true,
        }
    }
}

impl InDense {
    fn whole(self) -> Self {
        match self {
            Self::GateUp(_) => Self::GateUp(0),
            Self::GateUpBias(_) => Self::GateUpBias(0),
            whole => whole,
        }
    }

    fn is_vector(self) -> bool {
        matches!(self, Self::GateUpBias(_) | Self::DownBias)
    }
}

/// A tensor's place in a model.
pub(super) enum Target<'a, B: Backend> {
    /// Rows of a matrix, from this one on.
    Rows(&'a mut B::Matrix, usize),
    /// The numbers of a vector from this one on.
    Numbers(&'a mut B::Vector, usize),
}

/// Weights whose names and shapes are a model's, and where each of them goes.
pub(crate) struct Checked<'a> {
    weights: &'a dyn Weights,
    /// In the order of the layers.
    tensors: Vec<Arc<Tensor>>,
}

/// Every tensor of a model, in the order of its layers.
fn expected(shape: &ModelShape) -> Vec<Tensor> {
    let mut tensors = Vec::new();
    let mut add = |name: &str, dims: &[usize], place: Destination| {
        tensors.push(Tensor { name: name.to_owned(), shape: dims.to_vec(), place });
    };
    add("model.embed_tokens.weight", &[shape.vocab_size, shape.hidden], Destination::Embedding);
    for (index, layer) in shape.layers.iter().enumerate() {
        expected_of_layer(shape, layer, &mut |name, dims, place| {
            add(&format!("model.layers.{index}.{name}"), dims, Destination::Layer(index, place));
        });
    }
    add("model.norm.weight", &[shape.hidden], Destination::Norm);
    if !shape.tied {
        add("lm_head.weight", &[shape.vocab_size, shape.hidden], Destination::Head);
    }
    tensors
}

/// The numbers of all tensors of a model.
pub(crate) fn parameter_count(shape: &ModelShape) -> u64 {
    let of_tensor =
        |tensor: &Tensor| tensor.shape.iter().fold(1, |product: u64, len| product.saturating_mul(*len as u64));
    expected(shape).iter().map(of_tensor).fold(0, u64::saturating_add)
}

fn expected_of_layer(shape: &ModelShape, layer: &LayerShape, add: &mut dyn FnMut(&str, &[usize], InLayer)) {
    let (q, kv) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    add("input_layernorm.weight", &[shape.hidden], InLayer::AttentionNorm);
    add("post_attention_layernorm.weight", &[shape.hidden], InLayer::MlpNorm);
    for (name, rows, first) in [("q", q, 0), ("k", kv, q), ("v", kv, q + kv)] {
        add(&format!("self_attn.{name}_proj.weight"), &[rows, shape.hidden], InLayer::Qkv(first));
        if shape.qkv_bias {
            add(&format!("self_attn.{name}_proj.bias"), &[rows], InLayer::QkvBias(first));
        }
    }
    add("self_attn.o_proj.weight", &[shape.hidden, q], InLayer::Output);
    if shape.output_bias {
        add("self_attn.o_proj.bias", &[shape.hidden], InLayer::OutputBias);
    }
    if shape.head_norms {
        add("self_attn.q_norm.weight", &[shape.head_dim], InLayer::QueryNorm);
        add("self_attn.k_norm.weight", &[shape.head_dim], InLayer::KeyNorm);
    }
    match layer.mlp {
        MlpShape::Dense { intermediate } => expected_of_dense(shape, intermediate, &mut |name, dims, place| {
            add(&format!("mlp.{name}"), dims, InLayer::Dense(place));
        }),
        MlpShape::Sparse { experts, intermediate, .. } => {
            for expert in 0..experts {
                expected_of_dense(shape, intermediate, &mut |name, dims, place| {
                    add(&format!("mlp.experts.{expert}.{name}"), dims, InLayer::Expert(expert, place));
                });
            }
            add("mlp.gate.weight", &[experts, shape.hidden], InLayer::Router);
        }
    }
}

fn expected_of_dense(shape: &ModelShape, intermediate: usize, add: &mut dyn FnMut(&str, &[usize], InDense)) {
    for (name, dims, weight, bias) in [
        ("gate", [intermediate, shape.hidden], InDense::GateUp(0), InDense::GateUpBias(0)),
        ("up", [intermediate, shape.hidden], InDense::GateUp(intermediate), InDense::GateUpBias(intermediate)),
        ("down", [shape.hidden, intermediate], InDense::Down, InDense::DownBias),
    ] {
        add(&format!("{name}_proj.weight"), &dims, weight);
        if shape.mlp_bias {
            add(&format!("{name}_proj.bias"), &dims[..1], bias);
        }
    }
}

impl Tensors {
    /// Every tensor of a model.
    pub(super) fn of(shape: &ModelShape) -> Self {
        let all: Vec<Arc<Tensor>> = expected(shape).into_iter().map(Arc::new).collect();
        let mut shares = BTreeMap::new();
        for tensor in &all {
            *shares.entry(tensor.place.whole()).or_default() += 1;
        }
        let numbers = all.iter().enumerate().map(|(number, tensor)| (tensor.name.clone(), number)).collect();
        Self { all, numbers, shares, tied: shape.tied }
    }

    /// All of them, in the order of the layers.
    pub(super) fn all(&self) -> &[Arc<Tensor>] {
        &self.all
    }

    /// The tensor of this name.
    pub(super) fn named(&self, name: &str) -> Option<&Arc<Tensor>> {
        self.all.get(*self.numbers.get(name)?)
    }

    /// How many tensors share this matrix or vector.
    pub(super) fn sharing(&self, whole: Destination) -> usize {
        self.shares.get(&whole).copied().unwrap_or_default()
    }

    /// Tensors that some checkpoints hold and no model needs: they are computed, or tied to others.
    fn is_redundant(&self, name: &str) -> bool {
        name.ends_with("rotary_emb.inv_freq") || (self.tied && name == "lm_head.weight")
    }
}

impl<'a> Checked<'a> {
    /// The tensors that the model has a place for.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter().map(|tensor| &**tensor)
    }

    /// The number of these tensors.
    pub(crate) fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Compares what is there with what the model has. `complete` asks for all of it.
    pub(super) fn new(tensors: &Tensors, weights: &'a dyn Weights, complete: bool) -> Result<Self, WeightsError> {
        let (mut found, mut unknown) = (BTreeMap::new(), Vec::new());
        for (name, shape) in weights.tensors() {
            match tensors.numbers.get(name) {
                Some(number) => _ = found.insert(*number, shape),
                None if tensors.is_redundant(name) => {}
                None => unknown.push(name.to_owned()),
            }
        }
        if !unknown.is_empty() {
            return Err(WeightsError::Unknown(unknown));
        }
        let expected = |number: usize| &tensors.all[number];
        let wrong = found.iter().find(|(number, shape)| expected(**number).shape != **shape);
        if let Some((number, shape)) = wrong {
            let Tensor { name, shape: expected, .. } = &**expected(*number);
            return Err(WeightsError::Shape { name: name.clone(), found: shape.to_vec(), expected: expected.clone() });
        }
        if complete && found.len() < tensors.all.len() {
            let missing = tensors.all.iter().enumerate().filter(|(number, _)| !found.contains_key(number));
            return Err(WeightsError::Missing(missing.map(|(_, tensor)| tensor.name.clone()).collect()));
        }
        Ok(Self { weights, tensors: found.into_keys().map(|number| Arc::clone(expected(number))).collect() })
    }
}

impl<B: Backend> Model<B> {
    /// Overwrites tensors; `progress` is called with those that are written and their number.
    pub(super) fn write(
        &mut self,
        Checked { weights, tensors }: &Checked<'_>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<(), WeightsError> {
        for (done, tensor) in tensors.iter().enumerate() {
            progress(done, tensors.len());
            self.write_tensor(tensor.place, &*weights.rows(&tensor.name)?)?;
        }
        progress(tensors.len(), tensors.len());
        Ok(())
    }

    pub(super) fn write_tensor(&mut self, place: Destination, rows: &dyn Rows) -> Result<(), WeightsError> {
        let parameters = self.parameters.as_mut().ok_or(WeightsError::NoRoom)?;
        match parameters.target(place).expect(PLACED) {
            Target::Rows(matrix, first) => self.backend.write_rows(matrix, first, rows)?,
            Target::Numbers(vector, first) => {
                let mut numbers = Vec::new();
                rows.read(0..rows.rows(), &mut numbers)?;
                self.backend.write_vector(vector, first, &numbers)?;
            }
        }
        Ok(())
    }
}

/// Why every tensor has a target.
pub(super) const PLACED: &str = "a model has a place for every tensor of its shape";

impl<B: Backend> Parameters<B> {
    /// The bytes that a tensor, or a whole matrix, takes.
    pub(super) fn bytes(&mut self, backend: &B, place: Destination) -> u64 {
        match self.target(place) {
            Some(Target::Rows(matrix, _)) => backend.matrix_bytes(matrix),
            Some(Target::Numbers(vector, _)) => backend.vector_bytes(vector),
            None => 0,
        }
    }

    pub(super) fn target(&mut self, place: Destination) -> Option<Target<'_, B>> {
        match place {
            Destination::Embedding => Some(Target::Rows(&mut self.embedding, 0)),
            Destination::Norm => Some(Target::Numbers(&mut self.norm, 0)),
            Destination::Head => self.head.as_mut().map(|head| Target::Rows(head, 0)),
            Destination::Layer(layer, place) => self.layers.get_mut(layer)?.target(place),
        }
    }
}

impl<B: Backend> Layer<B> {
    fn target(&mut self, place: InLayer) -> Option<Target<'_, B>> {
        match (place, &mut self.mlp) {
            (InLayer::AttentionNorm, _) => Some(Target::Numbers(&mut self.attention_norm, 0)),
            (InLayer::Qkv(first), _) => Some(Target::Rows(&mut self.qkv, first)),
            (InLayer::QkvBias(first), _) => numbers(&mut self.qkv_bias, first),
            (InLayer::QueryNorm, _) => numbers(&mut self.query_norm, 0),
            (InLayer::KeyNorm, _) => numbers(&mut self.key_norm, 0),
            (InLayer::Output, _) => Some(Target::Rows(&mut self.output, 0)),
            (InLayer::OutputBias, _) => numbers(&mut self.output_bias, 0),
            (InLayer::MlpNorm, _) => Some(Target::Numbers(&mut self.mlp_norm, 0)),
            (InLayer::Dense(place), Mlp::Dense(dense)) => dense.target(place),
            (InLayer::Router, Mlp::Sparse { router, .. }) => Some(Target::Rows(router, 0)),
            (InLayer::Expert(expert, place), Mlp::Sparse { experts, .. }) => experts.get_mut(expert)?.target(place),
            (InLayer::Router | InLayer::Expert(..), Mlp::Dense(_)) | (InLayer::Dense(_), Mlp::Sparse { .. }) => None,
        }
    }
}

impl<B: Backend> Dense<B> {
    fn target(&mut self, place: InDense) -> Option<Target<'_, B>> {
        match place {
            InDense::GateUp(first) => Some(Target::Rows(&mut self.gate_up, first)),
            InDense::GateUpBias(first) => numbers(&mut self.gate_up_bias, first),
            InDense::Down => Some(Target::Rows(&mut self.down, 0)),
            InDense::DownBias => numbers(&mut self.down_bias, 0),
        }
    }
}

/// A vector that not every model has.
fn numbers<B: Backend>(vector: &mut Option<B::Vector>, first: usize) -> Option<Target<'_, B>> {
    vector.as_mut().map(|vector| Target::Numbers(vector, first))
}
