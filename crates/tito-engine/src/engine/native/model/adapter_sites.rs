//! Which matrices of a model adapters can change, under the names of the modules that are trained.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    adapters::{AddedModule, Addition, Form, Places},
    destinations::{Destination, InDense, InLatent, InLayer, InRecurrent},
    shape::ModelShape,
    tensor::{Tensor, TensorSlice},
    tensors::Tensors,
};
use crate::weights::peft::{PeftAdapter, PeftKind, PeftModule};

/// Whether adapters can change what is here.
fn is_adapted(place: Destination) -> bool {
    let Destination::Layer(_, place) = place else {
        return !matches!(place, Destination::InputNorm | Destination::Norm | Destination::Tower(_));
    };
    match place {
        InLayer::Qkv(_)
        | InLayer::Gate(_)
        | InLayer::Output
        | InLayer::InputGate
        | InLayer::InputProjection
        | InLayer::Router
        | InLayer::SharedGate
        | InLayer::LatentDown
        | InLayer::LatentUp => true,
        InLayer::Dense(place) | InLayer::Shared(place) => matches!(place, InDense::GateUp(_) | InDense::Down),
        InLayer::Latent(place) => {
            !matches!(place, InLatent::QueryDownBias | InLatent::QueryNorm | InLatent::DownBias | InLatent::Norm)
        }
        InLayer::Recurrent(place) => {
            matches!(place, InRecurrent::Input(_) | InRecurrent::Down(_) | InRecurrent::Up(_) | InRecurrent::Output)
        }
        _ => false,
    }
}

/// How the model holds what is here.
fn form(part: &TensorSlice) -> Form {
    match part.place {
        Destination::Embedding | Destination::InputEmbedding => Form::Table,
        _ if part.transposed => Form::Transposed,
        _ => Form::Linear,
    }
}

/// The matrices of a model that adapters can change.
pub(crate) struct AdapterSites {
    tensors: Arc<Tensors>,
    /// The rows of each that adapters add to.
    outputs: BTreeMap<Destination, usize>,
}

/// What a module of an adapter changes.
struct Site<'a> {
    tensor: &'a Tensor,
    parts: Vec<TensorSlice>,
}

impl AdapterSites {
    /// Those of a model of this shape.
    pub(crate) fn of(shape: &ModelShape) -> Self {
        Self::new(Arc::new(Tensors::of(shape)))
    }

    pub(super) fn new(tensors: Arc<Tensors>) -> Self {
        let mut outputs = BTreeMap::new();
        for tensor in tensors.all() {
            for part in tensor.parts.iter().filter(|part| is_adapted(part.place)) {
                *outputs.entry(part.place.whole()).or_default() += match form(part) {
                    Form::Linear => part.rows.len(),
                    Form::Transposed | Form::Table => tensor.shape[1],
                };
            }
        }
        Self { tensors, outputs }
    }

    /// Compares an adapter with the model, and returns the name of the tensor that each of its modules changes; the error is
    /// one line.
    pub(crate) fn check(&self, adapter: &PeftAdapter) -> Result<Vec<String>, String> {
        self.additions(adapter)?;
        adapter.modules.iter().map(|module| Ok(self.site(module)?.tensor.name.clone())).collect()
    }

    /// The bytes of the thin matrices of an adapter of all of them, of this rank and in numbers of so many bytes.
    pub(crate) fn slot_bytes(&self, rank: usize, number: usize) -> u64 {
        let of_tensor = |tensor: &Arc<Tensor>| -> usize {
            let parts: Vec<&TensorSlice> = tensor.parts.iter().filter(|part| is_adapted(part.place)).collect();
            if parts.iter().any(|part| form(part) == Form::Transposed) {
                // Each of its rows is in one matrix, and the columns are there in both forms.
                return parts.iter().map(|part| part.rows.len()).sum::<usize>() + 2 * tensor.shape[1];
            }
            let wholes: BTreeSet<Destination> = parts.iter().map(|part| part.place.whole()).collect();
            // Other than a table, a tensor has as many columns as it has inputs.
            let inputs = usize::from(parts.iter().all(|part| form(part) != Form::Table));
            wholes.into_iter().map(|whole| tensor.shape[inputs] + self.outputs[&whole]).sum()
        };
        let head = self.tensors.tied().map_or(0, |embeddings| embeddings.shape.iter().sum());
        (rank * number * (head + self.tensors.all().iter().map(of_tensor).sum::<usize>())) as u64
    }

    /// The modules of an adapter, by the names of the tensors that they change; the error is one line.
    pub(crate) fn by_tensor<'a>(&self, adapter: &'a PeftAdapter) -> Result<BTreeMap<String, &'a PeftModule>, String> {
        let names = self.check(adapter)?;
        if let Some(name) = names.iter().find(|name| self.tensors.tied().is_some_and(|tied| tied.name == **name)) {
            return Err(format!(
                "the adapter changes {name}, which is both the embeddings and the head of the model; a checkpoint cannot \
                 have one of them changed"
            ));
        }
        Ok(names.into_iter().zip(&adapter.modules).collect())
    }

    /// What an adapter adds to the matrices that it changes.
    pub(super) fn additions<'a>(&self, adapter: &'a PeftAdapter) -> Result<Vec<Addition<'a>>, String> {
        let mut additions: BTreeMap<Destination, Addition<'a>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for module in &adapter.modules {
            let Site { tensor, parts } = self.site(module)?;
            if !seen.insert((&tensor.name, parts[0].place)) {
                return Err(format!("the adapter changes {} twice, under two of its names", tensor.name));
            }
            let mut of_whole: BTreeMap<(Destination, Form), Places> = BTreeMap::new();
            for part in &parts {
                let rows = of_whole.entry((part.place.whole(), form(part))).or_default();
                rows.push((part.rows.clone(), part.place.first()));
            }
            for ((whole, form), rows) in of_whole {
                let outputs = self.outputs.get(&whole).copied().unwrap_or(module.b.shape[0]);
                let inputs = match form {
                    Form::Linear | Form::Table => module.a.shape[1],
                    Form::Transposed => rows.iter().map(|(rows, _)| rows.len()).sum(),
                };
                let new = || Addition { whole, form, outputs, inputs, modules: Vec::new() };
                additions.entry(whole).or_insert_with(new).modules.push(AddedModule { module, rows });
            }
        }
        Ok(additions.into_values().collect())
    }

    /// What a module of an adapter is trained beside.
    fn site(&self, PeftModule { name, kind, a, b, base, .. }: &PeftModule) -> Result<Site<'_>, String> {
        let weight = format!("{name}.weight");
        let (tensor, parts) = match (self.tensors.of_module(name), self.tensors.tied()) {
            (Some(tensor), _) => (tensor, tensor.parts.clone()),
            // The head is another module than the embeddings, also where both have the same weights.
            (None, Some(tied)) if self.tensors.is_head(&weight) => {
                let rows = 0..tied.shape[0];
                (tied, vec![TensorSlice { place: Destination::Head, rows, transposed: false }])
            }
            (None, _) if self.tensors.is_of_other_part(name) => return Err(of_images(name)),
            (None, _) => return Err(format!("the adapter changes {name}, which the model does not have")),
        };
        if parts.iter().any(|part| matches!(part.place, Destination::Tower(_))) {
            return Err(of_images(name));
        }
        let [rows, columns] = tensor.shape[..] else { return Err(not_served(name)) };
        let is_table = parts.iter().any(|part| form(part) == Form::Table);
        let of_kind = if is_table { PeftKind::Embedding } else { PeftKind::Linear };
        if *kind != of_kind || !parts.iter().all(|part| is_adapted(part.place)) {
            return Err(not_served(name));
        }
        let found = match kind {
            PeftKind::Linear => [b.shape[0], a.shape[1]],
            PeftKind::Embedding => [a.shape[1], b.shape[0]],
        };
        let taken = [Some(&found[..]), base.as_ref().map(|base| &base.shape[..])];
        match taken.into_iter().flatten().find(|shape| **shape != [rows, columns]) {
            Some(found) => {
                let expected = [rows, columns];
                Err(format!("the adapter takes {name} to be of the shape {found:?}, and it is of {expected:?}"))
            }
            None => Ok(Site { tensor, parts }),
        }
    }
}

fn of_images(name: &str) -> String {
    format!("the adapter changes {name}; adapters are served of what reads text, not of what reads images or sounds")
}

fn not_served(name: &str) -> String {
    format!(
        "the adapter changes {name}; adapters of linear layers and embeddings are served, but not of norms, convolutions and \
         experts"
    )
}
