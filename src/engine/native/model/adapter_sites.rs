//! Which matrices of a model adapters can change, under the names of the modules that are trained.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use super::{
    Model,
    adapters::{AdapterSlot, AddedModule, Addition},
    destinations::{Destination, InDense, InLatent, InLayer, InRecurrent},
    shape::ModelShape,
    tensor::{Part, Tensor},
    tensors::Tensors,
};
use crate::{
    engine::native::backend::Backend,
    weights::peft::{PeftAdapter, PeftKind, PeftModule},
};

/// Whether adapters can change what is here.
fn is_adapted(place: InLayer) -> bool {
    match place {
        InLayer::Qkv(_) | InLayer::Gate(_) | InLayer::Output | InLayer::InputGate | InLayer::InputProjection => true,
        InLayer::Dense(place) | InLayer::Shared(place) => matches!(place, InDense::GateUp(_) | InDense::Down),
        InLayer::Latent(place) => matches!(place, InLatent::QueryDown | InLatent::Query | InLatent::Down),
        InLayer::Recurrent(place) => {
            matches!(place, InRecurrent::Input(_) | InRecurrent::Down(_) | InRecurrent::Up(_) | InRecurrent::Output)
        }
        _ => false,
    }
}

/// The matrices of a model that adapters can change.
pub(crate) struct AdapterSites {
    tensors: Arc<Tensors>,
    /// The outputs of each.
    outputs: BTreeMap<Destination, usize>,
}

impl AdapterSites {
    /// Those of a model of this shape.
    pub(crate) fn of(shape: &ModelShape) -> Self {
        Self::new(Arc::new(Tensors::of(shape)))
    }

    pub(super) fn new(tensors: Arc<Tensors>) -> Self {
        let mut outputs = BTreeMap::new();
        for part in tensors.all().iter().flat_map(|tensor| &tensor.parts) {
            if let Destination::Layer(_, place) = part.place
                && is_adapted(place)
            {
                *outputs.entry(part.place.whole()).or_default() += part.rows.len();
            }
        }
        Self { tensors, outputs }
    }

    /// Compares an adapter with the model; the error is one line.
    pub(crate) fn check(&self, adapter: &PeftAdapter) -> Result<(), String> {
        self.additions(adapter).map(|_| ())
    }

    /// The bytes of the thin matrices of an adapter of all of them, of this rank and in numbers of so many bytes.
    pub(crate) fn slot_bytes(&self, rank: usize, number: usize) -> u64 {
        let adapted = |part: &&Part| matches!(part.place, Destination::Layer(_, place) if is_adapted(place));
        let of_tensor = |tensor: &Arc<Tensor>| -> u64 {
            let wholes: BTreeSet<Destination> =
                tensor.parts.iter().filter(adapted).map(|part| part.place.whole()).collect();
            let of_whole = |whole: Destination| (rank * (tensor.shape[1] + self.outputs[&whole]) * number) as u64;
            wholes.into_iter().map(of_whole).sum()
        };
        self.tensors.all().iter().map(of_tensor).sum()
    }

    /// The modules of an adapter, by the names of the tensors that they change; the error is one line.
    pub(crate) fn by_tensor<'a>(&self, adapter: &'a PeftAdapter) -> Result<BTreeMap<String, &'a PeftModule>, String> {
        self.check(adapter)?;
        adapter.modules.iter().map(|module| Ok((self.tensor(module)?.name.clone(), module))).collect()
    }

    /// What an adapter adds to the matrices that it changes.
    fn additions<'a>(&self, adapter: &'a PeftAdapter) -> Result<Vec<Addition<'a>>, String> {
        let mut additions: BTreeMap<Destination, Addition<'a>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for module in &adapter.modules {
            let tensor = self.tensor(module)?;
            if !seen.insert(&tensor.name) {
                return Err(format!("the adapter changes {} twice, under two of its names", tensor.name));
            }
            let mut of_whole: BTreeMap<Destination, Vec<(Range<usize>, usize)>> = BTreeMap::new();
            for part in &tensor.parts {
                of_whole.entry(part.place.whole()).or_default().push((part.rows.clone(), part.place.first()));
            }
            for (whole, rows) in of_whole {
                let (outputs, inputs) = (self.outputs[&whole], tensor.shape[1]);
                let new = || Addition { whole, outputs, inputs, modules: Vec::new() };
                additions.entry(whole).or_insert_with(new).modules.push(AddedModule { module, rows });
            }
        }
        Ok(additions.into_values().collect())
    }

    /// The tensor that a module of an adapter is trained beside.
    fn tensor(&self, PeftModule { name, kind, a, b, .. }: &PeftModule) -> Result<&Tensor, String> {
        let Some(tensor) = self.tensors.named(&format!("{name}.weight")) else {
            return Err(format!("the adapter changes {name}, which the model does not have"));
        };
        let is_adapted =
            |part: &Part| !part.transposed && matches!(part.place, Destination::Layer(_, place) if is_adapted(place));
        let [outputs, inputs] = tensor.shape[..] else { return Err(not_served(name)) };
        if *kind != PeftKind::Linear || !tensor.parts.iter().all(is_adapted) {
            return Err(not_served(name));
        }
        let (found, expected) = ([b.shape[0], a.shape[1]], [outputs, inputs]);
        if found != expected {
            return Err(format!("the adapter takes {name} to be of the shape {found:?}, and it is of {expected:?}"));
        }
        Ok(tensor)
    }
}

fn not_served(name: &str) -> String {
    format!(
        "the adapter changes {name}; adapters of linear layers are served, but not of embeddings, heads, routers, experts, \
         and keys and values that are compressed together"
    )
}

impl<B: Backend> Model<B> {
    /// Puts an adapter into a slot, in the place of whichever was there.
    ///
    /// The error is one line: the adapter is not the model's, or there is no memory for it. The slot is empty then.
    pub(crate) fn put_adapter(&mut self, slot: AdapterSlot, adapter: &PeftAdapter) -> Result<(), String> {
        let Self { adapter_sites, backend, workspace, .. } = self;
        let put = adapter_sites
            .additions(adapter)
            .and_then(|additions| workspace.adapters.put(backend, slot, additions).map_err(|error| error.to_string()));
        if put.is_err() {
            workspace.adapters.clear(slot);
        }
        put
    }

    /// Gives the memory of a slot back.
    pub(crate) fn clear_adapter(&mut self, slot: AdapterSlot) {
        self.workspace.adapters.clear(slot);
    }
}
