//! Tinker's calls that sample, for the Python package `tinker` 0.38.0, with `--tinker-api`.
//!
//! Sampling takes the road of `/inference/v1/generate`: ids in, ids and log-probs out. Log-probs are those of
//! `--logprobs-mode`: by default the model's own, at temperature 1. Training is refused. What is kept of sessions is in `tinker_sessions`.

mod enabled;
mod request;
mod response;
mod sampling;

use std::sync::Arc;

use axum::{Json, extract::State};
use serde_json::{Value, json};
use utoipa_axum::{router::OpenApiRouter, routes};

use self::enabled::{Enabled, sessions_of};
use crate::{
    http::{caller::Caller, json_body::JsonBody, path::PathParameters},
    retry::Cause,
    state::Api,
    wire::{
        error::{ApiError, ErrorKind},
        tinker::sessions::{
            TinkerCapabilities, TinkerClientConfig, TinkerDynamicConfig, TinkerHeartbeat, TinkerHeartbeatRequest,
            TinkerModel, TinkerSampler, TinkerSamplingSession, TinkerSamplingSessionRequest, TinkerSession,
            TinkerSessionRequest, TinkerStatus,
        },
    },
};

pub(crate) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(client_config))
        .routes(routes!(dynamic_config))
        .routes(routes!(capabilities))
        .routes(routes!(healthz))
        .routes(routes!(create_session))
        .routes(routes!(heartbeat))
        .routes(routes!(finish))
        .routes(routes!(create_sampling_session))
        .routes(routes!(sampler))
        .routes(routes!(telemetry))
        .routes(routes!(refuse_training))
        .merge(sampling::router())
}

/// Flags for a client that begins.
#[utoipa::path(post, path = "/api/v1/client/config", tag = "tinker", responses((status = 200, body = TinkerClientConfig), (status = 404, description = "The server was started without `--tinker-api`")))]
async fn client_config(State(api): State<Arc<Api>>) -> Result<Json<TinkerClientConfig>, ApiError> {
    sessions_of(&api)?;
    Ok(Json(TinkerClientConfig {}))
}

/// Flags that a client asks for again and again.
#[utoipa::path(
    post,
    path = "/api/v1/client/dynamic_config",
    tag = "tinker",
    responses((status = 200, body = TinkerDynamicConfig), (status = 404, description = "The server was started without `--tinker-api`"))
)]
async fn dynamic_config(State(api): State<Arc<Api>>) -> Result<Json<TinkerDynamicConfig>, ApiError> {
    sessions_of(&api)?;
    Ok(Json(TinkerDynamicConfig { sample_cancel_enabled: true }))
}

/// The names under which the model is served.
#[utoipa::path(
    get,
    path = "/api/v1/get_server_capabilities",
    tag = "tinker",
    responses((status = 200, body = TinkerCapabilities), (status = 404, description = "The server was started without `--tinker-api`"))
)]
async fn capabilities(State(api): State<Arc<Api>>) -> Result<Json<TinkerCapabilities>, ApiError> {
    sessions_of(&api)?;
    let model = |name: &String| TinkerModel {
        model_name: name.clone(),
        max_context_length: api.turns.max_model_len,
        trainable: false,
        sampleable: true,
    };
    Ok(Json(TinkerCapabilities { supported_models: api.models.names().iter().map(model).collect() }))
}

/// Whether the server is there.
#[utoipa::path(get, path = "/api/v1/healthz", tag = "tinker", responses((status = 200, body = TinkerStatus), (status = 404, description = "The server was started without `--tinker-api`")))]
async fn healthz(State(api): State<Arc<Api>>) -> Result<Json<TinkerStatus>, ApiError> {
    sessions_of(&api)?;
    Ok(Json(TinkerStatus { status: "ok" }))
}

/// Begins a session, which ends when nothing is heard of its client for five minutes.
#[utoipa::path(post, path = "/api/v1/create_session", tag = "tinker", request_body = TinkerSessionRequest, responses(
    (status = 200, body = TinkerSession),
    (status = 429, description = "There are too many sessions"), (status = 404, description = "The server was started without `--tinker-api`")))]
async fn create_session(
    State(api): State<Arc<Api>>,
    _: Enabled,
    caller: Caller,
    JsonBody(_): JsonBody<TinkerSessionRequest>,
) -> Result<Json<TinkerSession>, ApiError> {
    let session_id = sessions_of(&api)?.begin(caller.client.owner())?;
    Ok(Json(TinkerSession { kind: "create_session", session_id }))
}

/// Says that the client of a session is still there.
#[utoipa::path(post, path = "/api/v1/session_heartbeat", tag = "tinker", request_body = TinkerHeartbeatRequest, responses(
    (status = 200, body = TinkerHeartbeat),
    (status = 410, description = "The session has ended, expired, or never was"), (status = 404, description = "The server was started without `--tinker-api`")))]
async fn heartbeat(
    State(api): State<Arc<Api>>,
    _: Enabled,
    caller: Caller,
    JsonBody(request): JsonBody<TinkerHeartbeatRequest>,
) -> Result<Json<TinkerHeartbeat>, ApiError> {
    sessions_of(&api)?.hear(&request.session_id, &caller.client.owner())?;
    Ok(Json(TinkerHeartbeat { kind: "session_heartbeat" }))
}

/// Ends a session with all that is sampled in it. Ending it again does nothing.
#[utoipa::path(
    post,
    path = "/api/v1/sessions/{session_id}/finish",
    tag = "tinker",
    params(("session_id" = String, Path, description = "The session")),
    responses((status = 200, body = Object), (status = 404, description = "The server was started without `--tinker-api`"))
)]
async fn finish(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathParameters(session_id): PathParameters<String>,
) -> Result<Json<Value>, ApiError> {
    sessions_of(&api)?.finish(&session_id, &caller.client.owner());
    Ok(Json(json!({})))
}

/// Begins a sampling session: says which model is sampled.
#[utoipa::path(
    post,
    path = "/api/v1/create_sampling_session",
    tag = "tinker",
    request_body = TinkerSamplingSessionRequest,
    responses((status = 200, body = TinkerSamplingSession), (status = 404, description = "There is no such session, or the server was started without `--tinker-api`"))
)]
async fn create_sampling_session(
    State(api): State<Arc<Api>>,
    _: Enabled,
    caller: Caller,
    JsonBody(request): JsonBody<TinkerSamplingSessionRequest>,
) -> Result<Json<TinkerSamplingSession>, ApiError> {
    let tinker = sessions_of(&api)?;
    let TinkerSamplingSessionRequest { session_id, sampling_session_seq_id: number, base_model, model_path } = request;
    let model = request::sampled_model(base_model, model_path, &api).await?;
    let id = tinker.begin_sampling(&session_id, &caller.client.owner(), number, model)?;
    Ok(Json(TinkerSamplingSession { kind: "create_sampling_session", sampling_session_id: id.to_string() }))
}

/// Says what a sampling session samples.
#[utoipa::path(
    get,
    path = "/api/v1/samplers/{sampler_id}",
    tag = "tinker",
    params(("sampler_id" = String, Path, description = "The sampling session")),
    responses((status = 200, body = TinkerSampler), (status = 404, description = "There is no such session, or the server was started without `--tinker-api`"))
)]
async fn sampler(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathParameters(sampler_id): PathParameters<String>,
) -> Result<Json<TinkerSampler>, ApiError> {
    let (_, model) = sessions_of(&api)?.model(&sampler_id, &caller.client.owner())?;
    Ok(Json(TinkerSampler { sampler_id, base_model: model.base_model, model_path: model.model_path }))
}

/// Takes what a client tells of itself, and drops it.
#[utoipa::path(post, path = "/api/v1/telemetry", tag = "tinker", responses((status = 200, body = TinkerStatus), (status = 404, description = "The server was started without `--tinker-api`")))]
async fn telemetry(State(api): State<Arc<Api>>) -> Result<Json<TinkerStatus>, ApiError> {
    sessions_of(&api)?;
    Ok(Json(TinkerStatus { status: "accepted" }))
}

/// Calls of the package that train, or keep weights.
const TRAINING: [&str; 13] = [
    "create_model",
    "create_custom_loss",
    "copy_weights",
    "forward",
    "forward_backward",
    "get_info",
    "load_weights",
    "optim_step",
    "save_weights",
    "save_weights_external",
    "save_weights_for_sampler",
    "unload_model",
    "weights_info",
];

/// Refuses calls that train.
#[utoipa::path(
    post,
    path = "/api/v1/{call}",
    tag = "tinker",
    params(("call" = String, Path, description = "A call that trains, or another one that is not served")),
    responses((status = 400, description = "It trains"), (status = 404, description = "It is not served"))
)]
async fn refuse_training(
    State(api): State<Arc<Api>>,
    PathParameters(call): PathParameters<String>,
) -> Result<(), ApiError> {
    sessions_of(&api)?;
    if TRAINING.contains(&call.as_str()) {
        let message = format!("`{call}` is about training, and this server only samples: train elsewhere");
        return Err(ApiError::invalid_request(message));
    }
    let message = format!("`{call}` is not served; this server only samples");
    Err(ApiError::new(ErrorKind::NotFound, None, message).caused_by(Cause::Request))
}
