//! Layers that a checkpoint has after the last one.
//!
//! They predict further tokens, and are not computed. Such a layer joins two states with `eh_proj`. One that does not is a
//! layer of the model, which `num_hidden_layers` does not count: it is refused, as without it the model would be another.
//! What says so may come after the rest of the layer in an update in parts, so that names are kept until its end.

use std::collections::{BTreeMap, BTreeSet};

use super::memory::Model;
use crate::engine::native::{backend::Backend, weights::WeightsError};

/// The names of what came of layers after the last one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FurtherLayers(BTreeMap<usize, BTreeSet<String>>);

impl FurtherLayers {
    /// Takes note of a tensor of a layer.
    pub(super) fn add(&mut self, layer: usize, name: &str) {
        self.0.entry(layer).or_default().insert(name.to_owned());
    }

    /// Takes note of what came with another part of an update.
    pub(crate) fn extend(&mut self, others: Self) {
        for (layer, names) in others.0 {
            self.0.entry(layer).or_default().extend(names);
        }
    }

    /// The layers that predict further tokens.
    fn predicting(&self) -> impl Iterator<Item = usize> {
        let joins = |names: &BTreeSet<String>| names.iter().any(|name| name.contains(".eh_proj."));
        self.0.iter().filter(move |(_, names)| joins(names)).map(|(layer, _)| *layer)
    }

    /// The tensors of the layers that do not.
    pub(super) fn uncounted(&self) -> impl Iterator<Item = &str> {
        self.uncounted_besides(&BTreeSet::new()).into_iter()
    }

    fn uncounted_besides(&self, known: &BTreeSet<usize>) -> Vec<&str> {
        let predicting: BTreeSet<usize> = self.predicting().chain(known.iter().copied()).collect();
        let others = self.0.iter().filter(|(layer, _)| !predicting.contains(layer));
        others.flat_map(|(_, names)| names).map(String::as_str).collect()
    }
}

impl<B: Backend> Model<B> {
    /// Refuses what an update brought of layers that `num_hidden_layers` does not count. A layer that was known to predict
    /// further tokens when the model was loaded, or since an earlier update, may come without what says so: an update may
    /// bring some tensors only.
    pub(crate) fn check_further(&mut self, further: &FurtherLayers) -> Result<(), WeightsError> {
        let unknown = further.uncounted_besides(&self.predicting);
        if !unknown.is_empty() {
            return Err(WeightsError::Unknown(unknown.into_iter().map(str::to_owned).collect()));
        }
        self.predicting.extend(further.predicting());
        Ok(())
    }
}
