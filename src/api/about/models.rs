//! `GET /v1/models`, and the names that requests may use.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    api::Api,
    wire::{answer::output::created, error::ApiError},
};

/// The served model and its names.
#[derive(Debug, Clone)]
pub struct ServedModels {
    names: Vec<String>,
    root: String,
    created: u64,
}

impl ServedModels {
    /// Serves the model at `root` under `names`; without any names, under `root` itself.
    pub fn new(root: impl Into<String>, names: Vec<String>) -> Self {
        let root = root.into();
        let names = if names.is_empty() { vec![root.clone()] } else { names };
        Self { names, root, created: created() }
    }

    /// Returns the name that answers carry: the first one, whichever name was asked for (as in vLLM).
    pub fn name(&self) -> &str {
        self.names.first().map_or(&self.root, |name| name)
    }

    /// Refuses a model that is not served here. A request that names none, or the empty one, takes any.
    pub(in crate::api) fn check(&self, model: Option<&str>) -> Result<(), ApiError> {
        match model {
            Some(model) if !model.is_empty() && !self.names.iter().any(|name| name == model) => {
                Err(ApiError::model_not_found(model, &self.names))
            }
            _ => Ok(()),
        }
    }
}

pub(in crate::api) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(list_models))
}

/// The served models.
#[derive(Debug, Serialize, ToSchema)]
struct ModelList {
    object: &'static str,
    data: Vec<ModelCard>,
}

/// One served name.
#[derive(Debug, Serialize, ToSchema)]
struct ModelCard {
    id: String,
    object: &'static str,
    created: u64,
    /// `vllm`: routers recognise the dialect of a worker by it.
    owned_by: &'static str,
    root: String,
    parent: Option<String>,
    max_model_len: usize,
    /// tito's own: what the weights are called that sample now.
    weight_version: String,
    /// tito's own: why nobody knows whether the model is computed right; absent where tests have compared it.
    #[serde(skip_serializing_if = "Option::is_none")]
    unproven: Option<String>,
    permission: Vec<ModelPermission>,
}

/// What OpenAI's clients once wanted to know.
#[derive(Debug, Serialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "the shape is OpenAI's")]
struct ModelPermission {
    id: String,
    object: &'static str,
    created: u64,
    allow_create_engine: bool,
    allow_sampling: bool,
    allow_logprobs: bool,
    allow_search_indices: bool,
    allow_view: bool,
    allow_fine_tuning: bool,
    organization: &'static str,
    group: Option<String>,
    is_blocking: bool,
}

/// Lists the served names.
#[utoipa::path(get, path = "/v1/models", tag = "server", responses((status = 200, body = ModelList)))]
async fn list_models(State(api): State<Arc<Api>>) -> Json<ModelList> {
    let models = &api.models;
    let weights = api.turns.generator.engine().current_weights();
    let card = |name: &String| ModelCard {
        id: name.clone(),
        object: "model",
        created: models.created,
        owned_by: "vllm",
        root: models.root.clone(),
        parent: None,
        max_model_len: api.turns.max_model_len,
        weight_version: weights.label.to_string(),
        unproven: api.turns.generator.engine().info().unproven.clone(),
        permission: vec![ModelPermission {
            // The id is as long as vLLM's.
            id: format!("modelperm-{:016x}", uuid::Uuid::new_v4().as_u64_pair().1),
            object: "model_permission",
            created: models.created,
            allow_create_engine: false,
            allow_sampling: true,
            allow_logprobs: true,
            allow_search_indices: false,
            allow_view: true,
            allow_fine_tuning: false,
            organization: "*",
            group: None,
            is_blocking: false,
        }],
    };
    Json(ModelList { object: "list", data: models.names.iter().map(card).collect() })
}
