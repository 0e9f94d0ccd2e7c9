//! The names that requests may use.

use std::sync::Arc;

use crate::{
    adapters::Adapters,
    engine::Adapter,
    wire::{answer::output::created, error::ApiError},
};

/// The served model and its names.
#[derive(Clone)]
pub struct ServedModels {
    pub(crate) names: Vec<String>,
    pub(crate) root: String,
    pub(crate) created: u64,
    pub(crate) adapters: Option<Arc<Adapters>>,
}

impl ServedModels {
    /// Serves the model at `root` under `names`; without any names, under `root` itself.
    pub fn new(root: impl Into<String>, names: Vec<String>) -> Self {
        let root = root.into();
        let names = if names.is_empty() { vec![root.clone()] } else { names };
        Self { names, root, created: created(), adapters: None }
    }

    /// Serves these adapters beside it, under their own names.
    #[must_use]
    pub fn with_adapters(self, adapters: Arc<Adapters>) -> Self {
        Self { adapters: Some(adapters), ..self }
    }

    /// Returns the names of the model itself.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the name that answers of the model itself carry: the first one, whichever was asked for (as in vLLM).
    pub fn name(&self) -> &str {
        self.names.first().map_or(&self.root, |name| name)
    }

    /// Returns the name that answers carry.
    pub(crate) fn answering(&self, adapter: Option<&Arc<Adapter>>) -> String {
        adapter.map_or(self.name(), |adapter| adapter.name()).to_owned()
    }

    /// Returns the adapter of this name that is loaded; refuses one that the weights of the base do not fit any more.
    pub(crate) async fn fitting(&self, name: &str) -> Result<Option<Arc<Adapter>>, ApiError> {
        let Some(adapters) = &self.adapters else { return Ok(None) };
        adapters.fitting(name).await.map_err(|error| ApiError::adapter_not_fitting(name, &error))
    }

    /// Whether this is a name of the model itself, or the path that it was loaded from.
    pub(crate) fn is_model(&self, name: &str) -> bool {
        self.root == name || self.names.iter().any(|served| served == name)
    }

    /// Returns the adapter that a request asks for, if it asks for one; refuses what is not served here. A request that
    /// names no model, or the empty one, takes the model itself. All dialects come here, so that an adapter that is found
    /// by its name is found by all of them.
    pub(crate) async fn find(&self, model: Option<&str>) -> Result<Option<Arc<Adapter>>, ApiError> {
        let Some(model) = model.filter(|model| !model.is_empty()) else { return Ok(None) };
        if self.names.iter().any(|name| name == model) {
            return Ok(None);
        }
        if let Some(adapters) = &self.adapters {
            adapters.find(model).await.map_err(|error| ApiError::adapter_not_loaded(model, &error))?;
        }
        let found = self.fitting(model).await?;
        found.map(Some).ok_or_else(|| ApiError::model_not_found(model, &self.names))
    }
}
