//! The tensors of a model under the names that checkpoints give them, and where each goes.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    destinations::Destination,
    expected::expected,
    names::{ExpertNames, Names},
    shape::{MlpShape, ModelShape},
    tensor::Tensor,
};
use crate::engine::native::routing::ExpertShape;

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

/// The numbers of all tensors of a model.
pub(crate) fn parameter_count(shape: &ModelShape) -> u64 {
    let of_tensor =
        |tensor: &Tensor| tensor.shape.iter().fold(1, |product: u64, len| product.saturating_mul(*len as u64));
    expected(shape).iter().map(of_tensor).fold(0, u64::saturating_add)
}

/// The share of these numbers that a token is computed with.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub(crate) fn share_read(shape: &ModelShape) -> f64 {
    let looked_up = if shape.tied { 0 } else { shape.vocab_size * shape.hidden };
    let unchosen = shape.layers.iter().filter_map(|layer| layer.mlp.as_ref()).map(|mlp| match mlp {
        MlpShape::Dense(_) => 0,
        MlpShape::Sparse(sparse) | MlpShape::Both(_, sparse) => {
            let ExpertShape { width, intermediate, .. } = sparse.expert_shape(shape.hidden);
            (sparse.experts - sparse.per_token) * width * (sparse.expert.inner_width() + intermediate)
        }
    });
    let unread = looked_up + unchosen.sum::<usize>();
    1.0 - (unread as f64 / parameter_count(shape) as f64).min(1.0)
}

impl Tensors {
    /// The names and shapes of all.
    #[cfg(test)]
    pub(super) fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.all.iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())).collect()
    }

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
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.meant(name).find_map(|name| self.numbers.get(&*name)).copied()
    }

    /// The tensor of this name that some checkpoints have instead of others, and the numbers of those.
    pub(super) fn other(&self, name: &str) -> Option<&(Arc<Tensor>, BTreeSet<usize>)> {
        self.meant(name).find_map(|name| self.others.get(&*name))
    }

    /// What a name may stand for: itself before what aliases make of it.
    fn meant<'n>(&self, name: &'n str) -> impl Iterator<Item = Cow<'n, str>> {
        let alias = move |(given, meant): &(&str, &str)| {
            name.strip_prefix(given).map(|rest| Cow::Owned(format!("{meant}{rest}")))
        };
        let within = move |(given, meant): &(&str, &str)| {
            name.contains(given).then(|| Cow::Owned(name.replacen(given, meant, 1)))
        };
        let aliases = self.names.aliases.iter().filter_map(alias);
        let all_within = self.names.aliases_within.iter().filter_map(within);
        std::iter::once(Cow::Borrowed(name)).chain(aliases).chain(all_within)
    }

    /// The tensor of the weights of a module.
    pub(super) fn of_module(&self, module: &str) -> Option<&Arc<Tensor>> {
        self.named(&format!("{module}.weight"))
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
    pub(super) fn tied_to(&self, name: &str) -> Option<&Arc<Tensor>> {
        self.tied().filter(|_| self.is_head(name))
    }

    /// Tensors that some checkpoints hold and no model needs: they are computed, or no answer depends on them.
    pub(super) fn is_redundant(&self, name: &str) -> bool {
        self.meant(name).any(|name| self.is_unused(&name))
    }

    fn is_unused(&self, name: &str) -> bool {
        let computed = name.ends_with("rotary_emb.inv_freq");
        let unused = |prefix: &&str| name.starts_with(*prefix);
        let in_layer = name.strip_prefix(self.names.layers).and_then(|rest| rest.split_once('.'));
        let is_unused = |(_, name): (&str, &str)| self.names.unused_in_layers.iter().any(|own| name.starts_with(own));
        let is_shared = in_layer.is_some_and(is_unused) || self.shared.iter().any(|prefix| name.starts_with(prefix));
        computed || is_shared || self.names.unused.iter().chain(self.names.other_parts).any(unused)
    }

    /// Whether a name is of what the model has for pictures and sounds and does not compute here.
    pub(super) fn is_of_other_part(&self, name: &str) -> bool {
        self.names.other_parts.iter().any(|prefix| name.starts_with(prefix))
    }

    /// The number of the layer that a name is of, if it is one of those after the last one that predict further tokens.
    pub(super) fn further_layer(&self, name: &str) -> Option<usize> {
        let layers = self.layers..self.layers + self.names.further_layers;
        let number = |name: Cow<'_, str>| name.strip_prefix(self.names.layers)?.split('.').next()?.parse().ok();
        self.meant(name).find_map(number).filter(|number| layers.contains(number))
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
    let mut names = shape.names.clone();
    if let (ExpertNames::Each(_), Some(fused)) = (names.experts, names.fused_experts) {
        names.experts = ExpertNames::Stacked(fused);
    }
    if let Some(joined) = names.recurrent.joined_convolution {
        names.recurrent.convolution = joined;
    }
    if names == shape.names {
        return HashMap::new();
    }
    let known: BTreeSet<&str> = all.iter().map(|tensor| tensor.name.as_str()).collect();
    let mut of_whole: BTreeMap<Destination, BTreeSet<usize>> = BTreeMap::new();
    for (number, tensor) in all.iter().enumerate() {
        for whole in tensor.wholes() {
            of_whole.entry(whole).or_default().insert(number);
        }
    }
    let instead = expected(&ModelShape { names, ..shape.clone() });
    let other = |tensor: Tensor| {
        let numbers = tensor.wholes().flat_map(|whole| of_whole.get(&whole).cloned().unwrap_or_default()).collect();
        (tensor.name.clone(), (Arc::new(tensor), numbers))
    };
    instead.into_iter().filter(|tensor| !known.contains(tensor.name.as_str())).map(other).collect()
}
