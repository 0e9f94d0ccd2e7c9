//! Weights that are a model's by their names and shapes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{ModelShape, further::FurtherLayers, tensor::Tensor, tensors::Tensors};
use crate::engine::native::weights::{Weights, WeightsError};

/// Weights whose names and shapes are a model's, and where each of them goes.
pub(crate) struct Checked<'a> {
    pub(super) weights: &'a dyn Weights,
    /// In the order of the layers, each with the name under which it is there.
    pub(super) tensors: Vec<(Arc<Tensor>, &'a str)>,
    /// The tensors of the model that are written with these, themselves or by those that stand for them.
    pub(super) written: Vec<Arc<Tensor>>,
    /// The names of heads that are there although the embeddings are the head too.
    pub(super) heads: Vec<&'a str>,
    /// What is there of layers after the last one.
    pub(super) further: FurtherLayers,
}

/// Refuses weights that are not a model's by their names, shapes and types, of which the files say all.
pub(crate) fn check_weights(shape: &ModelShape, weights: &dyn Weights) -> Result<(), WeightsError> {
    let tensors = Tensors::of(shape);
    let checked = Checked::new(&tensors, weights, true)?;
    checked.tensors.iter().try_for_each(|(_, name)| weights.rows(name).map(drop))
}

impl<'a> Checked<'a> {
    /// The tensors of the model that are written with these.
    pub(super) fn written(&self) -> impl Iterator<Item = &Tensor> {
        self.written.iter().map(|tensor| &**tensor)
    }

    /// The number of tensors of the model that are written with these.
    pub(crate) fn count(&self) -> usize {
        self.written.len()
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

    /// What is there of layers after the last one.
    pub(crate) fn further(&self) -> &FurtherLayers {
        &self.further
    }

    /// Compares what is there with what the model has. `complete` asks for all of it, and for nothing of layers that
    /// `num_hidden_layers` does not count: an update in parts is [asked for that](super::Model::check_further) at its end.
    pub(super) fn new(tensors: &Tensors, weights: &'a dyn Weights, complete: bool) -> Result<Self, WeightsError> {
        let (mut found, mut unknown, mut heads) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut further = FurtherLayers::default();
        if weights.tensors().is_empty() {
            return Err(WeightsError::Nothing);
        }
        // Which tensors of the model are written, each once.
        let mut written = BTreeSet::new();
        for (name, shape) in weights.tensors() {
            let (number, tensor, stands_for) = match (tensors.number(name), tensors.other(name)) {
                (Some(number), _) => (number, &tensors.all()[number], BTreeSet::from([number])),
                (None, Some((tensor, numbers))) => (numbers.first().copied().unwrap_or(0), tensor, numbers.clone()),
                (None, None) if let Some(embeddings) = tensors.tied_to(name) => {
                    embeddings.has_shape(name, shape)?;
                    heads.push(name);
                    continue;
                }
                (None, None) if let Some(layer) = tensors.further_layer(name) => {
                    further.add(layer, name);
                    continue;
                }
                (None, None) if tensors.is_redundant(name) || weights.is_filler(name) => continue,
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
        if complete {
            unknown.extend(further.uncounted().map(str::to_owned));
        }
        if !unknown.is_empty() {
            return Err(WeightsError::Unknown(unknown));
        }
        if let Some((tensor, _, shape)) = found.values().find(|(tensor, _, shape)| tensor.shape != **shape) {
            let (name, expected) = (tensor.name.clone(), tensor.shape.clone());
            return Err(WeightsError::Shape { name, found: shape.to_vec(), expected });
        }
        if complete && written.len() < tensors.all().len() {
            let missing = tensors.all().iter().enumerate().filter(|(number, _)| !written.contains(number));
            return Err(WeightsError::Missing(missing.map(|(_, tensor)| tensor.name.clone()).collect()));
        }
        Ok(Self {
            weights,
            tensors: found.into_values().map(|(tensor, name, _)| (Arc::clone(tensor), name)).collect(),
            written: written.into_iter().map(|number| Arc::clone(&tensors.all()[number])).collect(),
            heads,
            further,
        })
    }
}
