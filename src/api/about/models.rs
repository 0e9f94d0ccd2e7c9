//! `GET /v1/models`: the names that requests may use.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    adapters::Named,
    parser::{ReasoningParser, ToolParser},
    state::Api,
};

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
    /// The longest sequence; `null` for an adapter, as in vLLM.
    max_model_len: Option<usize>,
    /// tito's own: what the weights are called that sample now.
    weight_version: String,
    /// tito's own: why nobody knows whether the model is computed right; absent where tests have compared it.
    #[serde(skip_serializing_if = "Option::is_none")]
    unproven: Option<String>,
    /// tito's own: the format in which calls are read out of answers; absent where none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_parser: Option<&'static str>,
    /// tito's own: the format in which reasoning is read out of answers; absent where none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_parser: Option<&'static str>,
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

/// Lists the served names: those of the model, then those of its adapters.
#[utoipa::path(get, path = "/v1/models", tag = "server", responses((status = 200, body = ModelList)))]
async fn list_models(State(api): State<Arc<Api>>) -> Json<ModelList> {
    let models = &api.models;
    let engine = api.turns.generator.engine();
    let (weights, unproven) = (engine.current_weights(), &engine.info().unproven);
    let tools = api.turns.policies.tools;
    let tool_call_parser = tools.parser.map(ToolParser::name);
    let reasoning_parser = tools.reasoning.map(ReasoningParser::name);
    let of_model = models.names.iter().map(|name| ModelCard {
        id: name.clone(),
        object: "model",
        created: models.created,
        owned_by: "vllm",
        root: models.root.clone(),
        parent: None,
        max_model_len: Some(api.turns.max_model_len),
        weight_version: weights.label.to_string(),
        unproven: unproven.clone(),
        tool_call_parser,
        reasoning_parser,
        permission: permission(models.created),
    });
    let adapters = models.adapters.iter().flat_map(|adapters| adapters.all());
    let of_adapters = adapters.map(|(name, Named { adapter, source, base_model, created, .. })| ModelCard {
        id: name,
        object: "model",
        created,
        owned_by: "vllm",
        root: source,
        parent: Some(base_model.unwrap_or_else(|| models.name().to_owned())),
        max_model_len: None,
        weight_version: adapter.label().to_string(),
        unproven: unproven.clone(),
        tool_call_parser,
        reasoning_parser,
        permission: permission(created),
    });
    Json(ModelList { object: "list", data: of_model.chain(of_adapters).collect() })
}

fn permission(created: u64) -> Vec<ModelPermission> {
    vec![ModelPermission {
        // The id is as long as vLLM's.
        id: format!("modelperm-{:016x}", uuid::Uuid::new_v4().as_u64_pair().1),
        object: "model_permission",
        created,
        allow_create_engine: false,
        allow_sampling: true,
        allow_logprobs: true,
        allow_search_indices: false,
        allow_view: true,
        allow_fine_tuning: false,
        organization: "*",
        group: None,
        is_blocking: false,
    }]
}
