//! `GET /v1/nemo-rl/prefix-token-capability`: what NeMo-RL asks a rollout server before it relies on it.

use std::sync::Arc;

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::state::Api;

pub(in crate::api) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(prefix_token_capability))
}

/// What the server can do with ids, in the words of NeMo-RL's vLLM plugin `nemo_rl_prefix_api`.
#[derive(Debug, Serialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "the shape is the wire's")]
struct PrefixTokenCapability {
    /// Ids are continued.
    active: bool,
    /// Who continues them.
    plugin: &'static str,
    /// The version of who does.
    plugin_version: &'static str,
    /// Null: this is not vLLM.
    vllm_version: Option<&'static str>,
    /// `required_prefix_token_ids` is served, on chat completions and `/tokenize`.
    required_prefix_token_ids: bool,
    /// `return_token_ids` is served.
    return_token_ids: bool,
    /// Chat routes that continue ids: `/v1/chat/completions` and `/tokenize`.
    stock_chat_routes_replaced: u8,
    /// Answers are not sent to a bridge of NeMo Gym's.
    ng_capture: bool,
    /// Nor staged elsewhere.
    external_staging: bool,
}

/// What the server can do with ids.
#[utoipa::path(get, path = "/v1/nemo-rl/prefix-token-capability", tag = "server",
    responses((status = 200, body = PrefixTokenCapability)))]
async fn prefix_token_capability() -> Json<PrefixTokenCapability> {
    Json(PrefixTokenCapability {
        active: true,
        plugin: "tito",
        plugin_version: env!("CARGO_PKG_VERSION"),
        vllm_version: None,
        required_prefix_token_ids: true,
        return_token_ids: true,
        stock_chat_routes_replaced: 2,
        ng_capture: false,
        external_staging: false,
    })
}
