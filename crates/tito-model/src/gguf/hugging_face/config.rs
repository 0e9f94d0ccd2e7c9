//! config.json of a model whose arithmetic is known, complete, and its tensors.

use serde_json::{Map, Value};

use super::{
    super::{GgufError, GgufFile},
    families,
    model::Model,
    tensors::NamedTensor,
};

impl GgufFile {
    /// Returns all of config.json. What it could not say exactly is an error that names it.
    pub fn model_config(&self) -> Result<Map<String, Value>, GgufError> {
        self.model().map(|(config, _)| config)
    }

    /// All tensors, sorted by their names in the directory. A missing, an unexpected or a misshapen one is an error.
    pub(crate) fn named_tensors(&self) -> Result<Vec<NamedTensor>, GgufError> {
        let (_, mut tensors) = self.model()?;
        tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(tensors)
    }

    fn model(&self) -> Result<(Map<String, Value>, Vec<NamedTensor>), GgufError> {
        let family = families::of(self)?;
        Model::read(self, family, self.config()?)
    }
}
