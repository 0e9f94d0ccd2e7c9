//! The tensors of a model under the names that checkpoints give them, and where each goes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    Model, Parameters,
    attention::{Attention, Projection},
    both::Both,
    dense::Dense,
    destinations::{Destination, InDense, InLatent, InLayer, InRecurrent},
    expected::expected,
    latent::Latent,
    layer::{Layer, Mlp},
    mixture::Sparse,
    names::{ExpertNames, Names},
    recurrent::Recurrent,
    shape::ModelShape,
    stacks::{at_once, coded, read_slice, read_together},
    tensor::{LAYERS, Tensor},
};
use crate::engine::native::{
    backend::Backend,
    weights::{Rows, Weights, WeightsError},
};

/// The tensors of a model, by their order and by name.
pub(super) struct Tensors {
    all: Vec<Arc<Tensor>>,
    numbers: HashMap<String, usize>,
    /// Tensors that checkpoints may have instead, by name, and the numbers of those that each stands for.
    others: HashMap<String, (Arc<Tensor>, BTreeSet<usize>)>,
    /// How many tensors share a matrix or vector.
    shares: BTreeMap<Destination, usize>,
    tied: bool,
    layers: usize,
    names: Names,
    /// How the names begin of what checkpoints have for layers that attend to the keys and values of others.
    shared: Vec<String>,
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
    /// In the order of the layers, each with the name under which it is there.
    tensors: Vec<(Arc<Tensor>, &'a str)>,
    /// The tensors of the model that are written with these, themselves or by those that stand for them.
    written: Vec<Arc<Tensor>>,
    /// The names of heads that are there although the embeddings are the head too.
    heads: Vec<&'a str>,
}

/// The numbers of all tensors of a model.
pub(crate) fn parameter_count(shape: &ModelShape) -> u64 {
    let of_tensor =
        |tensor: &Tensor| tensor.shape.iter().fold(1, |product: u64, len| product.saturating_mul(*len as u64));
    expected(shape).iter().map(of_tensor).fold(0, u64::saturating_add)
}

impl Tensors {
    /// Every tensor of a model.
    pub(super) fn of(shape: &ModelShape) -> Self {
        let all: Vec<Arc<Tensor>> = expected(shape).into_iter().map(Arc::new).collect();
        let mut shares = BTreeMap::new();
        for tensor in &all {
            for whole in tensor.wholes() {
                *shares.entry(whole).or_default() += 1;
            }
        }
        let numbers = all.iter().enumerate().map(|(number, tensor)| (tensor.name.clone(), number)).collect();
        let others = others(shape, &all);
        Self {
            all,
            numbers,
            others,
            shares,
            tied: shape.tied,
            layers: shape.layers.len(),
            names: shape.names.clone(),
            shared: shared_names(shape),
        }
    }

    /// All of them, in the order of the layers.
    pub(super) fn all(&self) -> &[Arc<Tensor>] {
        &self.all
    }

    /// The tensor of this name.
    pub(super) fn named(&self, name: &str) -> Option<&Arc<Tensor>> {
        self.all.get(self.number(name)?)
    }

    /// The number of the tensor of this name, or of one that stands for it.
    fn number(&self, name: &str) -> Option<usize> {
        let alias = |(given, meant): &(&str, &str)| {
            name.strip_prefix(given).and_then(|rest| self.numbers.get(&format!("{meant}{rest}")))
        };
        let within = |(given, meant): &(&str, &str)| self.numbers.get(&name.replacen(given, meant, 1));
        let known = self.numbers.get(name).or_else(|| self.names.aliases.iter().find_map(alias));
        known.or_else(|| self.names.aliases_within.iter().find_map(within)).copied()
    }

    /// How many tensors share this matrix or vector.
    pub(super) fn sharing(&self, whole: Destination) -> usize {
        self.shares.get(&whole).copied().unwrap_or_default()
    }

    /// The embeddings, where they are the head too.
    pub(super) fn tied(&self) -> Option<&Arc<Tensor>> {
        self.all.first().filter(|_| self.tied)
    }

    /// Whether the head has this name, in checkpoints that hold one.
    pub(super) fn is_head(&self, name: &str) -> bool {
        name.strip_suffix(".weight") == Some(self.names.head) || name == "lm_head.weight"
    }

    /// The embeddings, for the name of a head that has to be the same.
    fn tied_to(&self, name: &str) -> Option<&Arc<Tensor>> {
        self.tied().filter(|_| self.is_head(name))
    }

    /// Tensors that some checkpoints hold and no model needs: they are computed, or no answer depends on them.
    fn is_redundant(&self, name: &str) -> bool {
        let computed = name.ends_with("rotary_emb.inv_freq");
        let unused = |prefix: &&str| match *prefix {
            LAYERS => name.strip_prefix(self.names.layers).is_some_and(|rest| self.is_of_later_layer(rest)),
            prefix => name.starts_with(prefix),
        };
        let in_layer = name.strip_prefix(self.names.layers).and_then(|rest| rest.split_once('.'));
        let is_unused = |(_, name): (&str, &str)| self.names.unused_in_layers.iter().any(|own| name.starts_with(own));
        let is_shared = in_layer.is_some_and(is_unused) || self.shared.iter().any(|prefix| name.starts_with(prefix));
        computed || is_shared || self.names.unused.iter().chain(self.names.other_parts).any(unused)
    }

    /// Whether what follows the prefix of layers is of one that the model does not compute.
    fn is_of_later_layer(&self, rest: &str) -> bool {
        let number = rest.split('.').next().and_then(|number| number.parse::<usize>().ok());
        number.is_some_and(|number| number >= self.layers)
    }
}

/// What layers would have that make keys and values of their own.
fn shared_names(shape: &ModelShape) -> Vec<String> {
    let sharing = shape.layers.iter().enumerate().filter(|(_, layer)| layer.cache().is_some());
    let of_layer = |(number, _)| {
        ["k_proj", "v_proj", "k_norm", "v_norm"].map(|name| format!("{}{number}.self_attn.{name}.", shape.names.layers))
    };
    sharing.flat_map(of_layer).collect()
}

/// The tensors that other checkpoints of the family have instead of some of these.
fn others(shape: &ModelShape, all: &[Arc<Tensor>]) -> HashMap<String, (Arc<Tensor>, BTreeSet<usize>)> {
    let Some(fused) = shape.names.fused_experts else { return HashMap::new() };
    let names = Names { experts: ExpertNames::Stacked(fused), ..shape.names.clone() };
    let known: BTreeSet<&str> = all.iter().map(|tensor| tensor.name.as_str()).collect();
    let mut of_whole: BTreeMap<Destination, BTreeSet<usize>> = BTreeMap::new();
    for (number, tensor) in all.iter().enumerate() {
        for whole in tensor.wholes() {
            of_whole.entry(whole).or_default().insert(number);
        }
    }
    let fused = expected(&ModelShape { names, ..shape.clone() });
    let other = |tensor: Tensor| {
        let numbers = tensor.wholes().flat_map(|whole| of_whole.get(&whole).cloned().unwrap_or_default()).collect();
        (tensor.name.clone(), (Arc::new(tensor), numbers))
    };
    fused.into_iter().filter(|tensor| !known.contains(tensor.name.as_str())).map(other).collect()
}

impl<'a> Checked<'a> {
    /// The tensors of the model that are written with these.
    pub(super) fn written(&self) -> impl Iterator<Item = &Tensor> {
        self.written.iter().map(|tensor| &**tensor)
    }

    /// The tensors that the model has a place for.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter().map(|(tensor, _)| &**tensor)
    }

    /// The name under which a tensor of the model is there.
    pub(super) fn name_of(&self, tensor: &Tensor) -> Option<&'a str> {
        self.tensors.iter().find(|(there, _)| there.name == tensor.name).map(|(_, name)| *name)
    }

    /// What these were read from, and the names of heads in it that are to be the embeddings.
    pub(super) fn heads(&self) -> (&'a dyn Weights, &[&'a str]) {
        (self.weights, &self.heads)
    }

    /// The number of these tensors.
    pub(crate) fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Compares what is there with what the model has. `complete` asks for all of it.
    pub(super) fn new(tensors: &Tensors, weights: &'a dyn Weights, complete: bool) -> Result<Self, WeightsError> {
        let (mut found, mut unknown, mut heads) = (BTreeMap::new(), Vec::new(), Vec::new());
        if weights.tensors().is_empty() {
            return Err(WeightsError::Nothing);
        }
        // Which tensors of the model are written, each once.
        let mut written = BTreeSet::new();
        for (name, shape) in weights.tensors() {
            let (number, tensor, stands_for) = match (tensors.number(name), tensors.others.get(name)) {
                (Some(number), _) => (number, &tensors.all[number], BTreeSet::from([number])),
                (None, Some((tensor, numbers))) => (numbers.first().copied().unwrap_or(0), tensor, numbers.clone()),
                (None, None) if let Some(embeddings) = tensors.tied_to(name) => {
                    embeddings.has_shape(name, shape)?;
                    heads.push(name);
                    continue;
                }
                (None, None) if tensors.is_redundant(name) => continue,
                (None, None) => {
                    unknown.push(name.to_owned());
                    continue;
                }
            };
            if stands_for.iter().any(|number| written.contains(number)) {
                return Err(WeightsError::Repeated(name.to_owned()));
            }
            written.extend(stands_for);
            found.insert(number, (tensor, name, shape));
        }
        if !unknown.is_empty() {
            return Err(WeightsError::Unknown(unknown));
        }
        if let Some((tensor, _, shape)) = found.values().find(|(tensor, _, shape)| tensor.shape != **shape) {
            let (name, expected) = (tensor.name.clone(), tensor.shape.clone());
            return Err(WeightsError::Shape { name, found: shape.to_vec(), expected });
        }
        if complete && written.len() < tensors.all.len() {
            let missing = tensors.all.iter().enumerate().filter(|(number, _)| !written.contains(number));
            return Err(WeightsError::Missing(missing.map(|(_, tensor)| tensor.name.clone()).collect()));
        }
        Ok(Self {
            weights,
            tensors: found.into_values().map(|(tensor, name, _)| (Arc::clone(tensor), name)).collect(),
            written: written.into_iter().map(|number| Arc::clone(&tensors.all[number])).collect(),
            heads,
        })
    }
}

impl<B: Backend> Model<B> {
    /// Overwrites tensors; `progress` is called with the bytes that are written, as they are held, and with those of all.
    pub(super) fn write(
        &mut self,
        Checked { weights, tensors, .. }: &Checked<'_>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), WeightsError> {
        let bytes: Vec<u64> = tensors.iter().map(|(tensor, _)| self.held_bytes(tensor)).collect();
        let (mut done, all) = (0, bytes.iter().sum());
        for ((tensor, name), bytes) in tensors.iter().zip(bytes) {
            progress(done, all);
            self.write_tensor(tensor, &*weights.rows(name)?)?;
            done += bytes;
        }
        progress(done, all);
        Ok(())
    }

    pub(super) fn write_tensor(&mut self, tensor: &Tensor, rows: &dyn Rows) -> Result<(), WeightsError> {
        if let Some(place) = tensor.place() {
            return self.write_place(place, rows);
        }
        // Codes are written as they are, and nothing of them is read before.
        if tensor.parts.iter().any(|part| coded(tensor, part, rows).is_some()) {
            return tensor.parts.iter().try_for_each(|part| match coded(tensor, part, rows) {
                Some(slice) => self.write_place(part.place, &slice),
                None => self.write_place(part.place, &read_slice(tensor, part, rows)?),
            });
        }
        for parts in tensor.parts.chunks(at_once(tensor)) {
            for (part, slice) in parts.iter().zip(read_together(tensor, parts, rows)?) {
                self.write_place(part.place, &slice)?;
            }
        }
        Ok(())
    }

    fn write_place(&mut self, place: Destination, rows: &dyn Rows) -> Result<(), WeightsError> {
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
            Destination::InputEmbedding => Some(Target::Rows(&mut self.inputs.as_mut()?.embedding, 0)),
            Destination::InputProjection => Some(Target::Rows(&mut self.inputs.as_mut()?.projection, 0)),
            Destination::InputNorm => Some(Target::Numbers(&mut self.inputs.as_mut()?.projection_norm, 0)),
            Destination::Norm => Some(Target::Numbers(&mut self.norm, 0)),
            Destination::Head => self.head.as_mut().map(|head| Target::Rows(head, 0)),
            Destination::Layer(layer, place) => self.layers.get_mut(layer)?.target(place),
            Destination::Tower(place) => self.tower.as_mut()?.target(place),
        }
    }
}

impl<B: Backend> Layer<B> {
    fn target(&mut self, place: InLayer) -> Option<Target<'_, B>> {
        match place {
            InLayer::AttentionNorm => numbers(&mut self.attention_norm, 0),
            InLayer::AfterAttentionNorm => numbers(&mut self.after_attention_norm, 0),
            InLayer::MlpNorm => numbers(&mut self.mlp_norm, 0),
            InLayer::AfterMlpNorm => numbers(&mut self.after_mlp_norm, 0),
            InLayer::Recurrent(place) => self.recurrent.as_mut()?.target(place),
            InLayer::InputGate => Some(Target::Rows(&mut self.input.as_mut()?.gate.matrix, 0)),
            InLayer::InputProjection => Some(Target::Rows(&mut self.input.as_mut()?.projection.matrix, 0)),
            InLayer::AfterInputNorm => Some(Target::Numbers(&mut self.input.as_mut()?.after, 0)),
            InLayer::Scalar => numbers(&mut self.scalar, 0),
            InLayer::Router
            | InLayer::RouterBias
            | InLayer::RouterNorm
            | InLayer::ExpertFactors
            | InLayer::AfterDenseNorm
            | InLayer::BeforeSparseNorm
            | InLayer::AfterSparseNorm
            | InLayer::ChoiceBias
            | InLayer::Dense(_)
            | InLayer::Expert(..)
            | InLayer::Shared(_)
            | InLayer::SharedGate
            | InLayer::LatentDown
            | InLayer::LatentDownBias
            | InLayer::LatentUp
            | InLayer::LatentUpBias => self.mlp.as_mut()?.target(place),
            place => self.attention.as_mut()?.target(place),
        }
    }
}

impl<B: Backend> Attention<B> {
    fn target(&mut self, place: InLayer) -> Option<Target<'_, B>> {
        match place {
            InLayer::Gate(first) => self.gate.as_mut().map(|gate| Target::Rows(&mut gate.matrix, first)),
            InLayer::GateBias(first) => numbers(&mut self.gate_bias, first),
            InLayer::Sinks => numbers(&mut self.sinks, 0),
            InLayer::Output => Some(Target::Rows(&mut self.output.matrix, 0)),
            InLayer::OutputBias => numbers(&mut self.output_bias, 0),
            place => self.projection.target(place),
        }
    }
}

impl<B: Backend> Recurrent<B> {
    fn target(&mut self, place: InRecurrent) -> Option<Target<'_, B>> {
        match place {
            InRecurrent::Input(first) => Some(Target::Rows(&mut self.input.matrix, first)),
            InRecurrent::InputBias(first) => numbers(&mut self.input_bias, first),
            InRecurrent::Down(index) => Some(Target::Rows(&mut self.low_rank.as_mut()?.get_mut(index)?.down.matrix, 0)),
            InRecurrent::Up(index) => Some(Target::Rows(&mut self.low_rank.as_mut()?.get_mut(index)?.up.matrix, 0)),
            InRecurrent::Convolution(first) => Some(Target::Numbers(&mut self.convolution, first)),
            InRecurrent::ConvolutionBias(first) => numbers(&mut self.convolution_bias, first),
            InRecurrent::Decay => Some(Target::Numbers(&mut self.tables.as_mut()?.decay, 0)),
            InRecurrent::StepBias => Some(Target::Numbers(&mut self.tables.as_mut()?.step_bias, 0)),
            InRecurrent::Skip => numbers(&mut self.tables.as_mut()?.skip, 0),
            InRecurrent::Norm => numbers(&mut self.tables.as_mut()?.norm, 0),
            InRecurrent::Output => Some(Target::Rows(&mut self.output.matrix, 0)),
            InRecurrent::OutputBias => numbers(&mut self.output_bias, 0),
        }
    }
}

impl<B: Backend> Projection<B> {
    fn target(&mut self, place: InLayer) -> Option<Target<'_, B>> {
        match (place, self) {
            (InLayer::Qkv(first), Self::Heads(heads)) => Some(Target::Rows(&mut heads.qkv.matrix, first)),
            (InLayer::QkvBias(first), Self::Heads(heads)) => numbers(&mut heads.qkv_bias, first),
            (InLayer::QueryNorm, Self::Heads(heads)) => numbers(&mut heads.query_norm, 0),
            (InLayer::KeyNorm, Self::Heads(heads)) => numbers(&mut heads.key_norm, 0),
            (InLayer::Latent(place), Self::Latent(latent)) => latent.target(place),
            _ => None,
        }
    }
}

impl<B: Backend> Latent<B> {
    fn target(&mut self, place: InLatent) -> Option<Target<'_, B>> {
        match place {
            InLatent::QueryDown => self.query_down.as_mut().map(|down| Target::Rows(&mut down.matrix, 0)),
            InLatent::QueryDownBias => numbers(&mut self.query_down_bias, 0),
            InLatent::QueryNorm => numbers(&mut self.query_norm, 0),
            InLatent::Query => Some(Target::Rows(&mut self.query.matrix, 0)),
            InLatent::Down => Some(Target::Rows(&mut self.down.matrix, 0)),
            InLatent::DownBias => numbers(&mut self.down_bias, 0),
            InLatent::Norm => Some(Target::Numbers(&mut self.norm, 0)),
            InLatent::Key(head) => self.keys.get_mut(head).map(|key| Target::Rows(&mut key.matrix, 0)),
            InLatent::Value(head) => self.values.get_mut(head).map(|value| Target::Rows(&mut value.matrix, 0)),
        }
    }
}

impl<B: Backend> Mlp<B> {
    fn target(&mut self, place: InLayer) -> Option<Target<'_, B>> {
        match (place, self) {
            (InLayer::Dense(place), Self::Dense(dense)) => dense.target(place),
            (_, Self::Dense(_)) => None,
            (place, Self::Sparse(sparse)) => sparse.target(place),
            (place, Self::Both(both)) => both.target(place),
        }
    }
}

impl<B: Backend> Both<B> {
    fn target(&mut self, place: InLayer) -> Option<Target<'_, B>> {
        match place {
            InLayer::Dense(place) => self.dense.target(place),
            InLayer::AfterDenseNorm => Some(Target::Numbers(&mut self.after_dense, 0)),
            InLayer::BeforeSparseNorm => Some(Target::Numbers(&mut self.before_sparse, 0)),
            InLayer::AfterSparseNorm => Some(Target::Numbers(&mut self.after_sparse, 0)),
            place => self.sparse.target(place),
        }
    }
}

impl<B: Backend> Sparse<B> {
    fn target(&mut self, place: InLayer) -> Option<Target<'_, B>> {
        match place {
            InLayer::Router => Some(Target::Rows(&mut self.router.matrix, 0)),
            InLayer::RouterBias => numbers(&mut self.router_bias, 0),
            InLayer::RouterNorm => numbers(&mut self.router_norm, 0),
            InLayer::ExpertFactors => numbers(&mut self.expert_factors, 0),
            InLayer::ChoiceBias => numbers(&mut self.choice_bias, 0),
            InLayer::Expert(expert, place) => self.experts.get_mut(expert)?.target(place),
            InLayer::Shared(place) => self.shared.as_mut()?.target(place),
            InLayer::SharedGate => self.shared_gate.as_mut().map(|gate| Target::Rows(&mut gate.matrix, 0)),
            InLayer::LatentDown => Some(Target::Rows(&mut self.latent.as_mut()?.down.matrix, 0)),
            InLayer::LatentDownBias => numbers(&mut self.latent.as_mut()?.down_bias, 0),
            InLayer::LatentUp => Some(Target::Rows(&mut self.latent.as_mut()?.up.matrix, 0)),
            InLayer::LatentUpBias => numbers(&mut self.latent.as_mut()?.up_bias, 0),
            _ => None,
        }
    }
}

impl<B: Backend> Dense<B> {
    fn target(&mut self, place: InDense) -> Option<Target<'_, B>> {
        match place {
            InDense::GateUp(first) => Some(Target::Rows(&mut self.gate_up.matrix, first)),
            InDense::GateUpBias(first) => numbers(&mut self.gate_up_bias, first),
            InDense::Down => Some(Target::Rows(&mut self.down.matrix, 0)),
            InDense::DownBias => numbers(&mut self.down_bias, 0),
            InDense::Activation(first) => numbers(&mut self.activation, first),
        }
    }
}

/// A vector that not every model has.
pub(super) fn numbers<B: Backend>(vector: &mut Option<B::Vector>, first: usize) -> Option<Target<'_, B>> {
    vector.as_mut().map(|vector| Target::Numbers(vector, first))
}
