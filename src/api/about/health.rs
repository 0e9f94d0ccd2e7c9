//! Whether the server lives and what it is: `/health`, `/livez`, `/readyz`, `/ping`, `/version`, `/kv_event_sources`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State, http::StatusCode};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    http::error,
    state::{Api, KvEventSource},
};

pub(in crate::api) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(livez))
        .routes(routes!(readyz))
        .routes(routes!(ping, ping_post))
        .routes(routes!(version))
        .routes(routes!(kv_event_sources))
}

/// The server's version.
#[derive(Debug, Serialize, ToSchema)]
struct Version {
    version: &'static str,
}

fn is_alive(api: &Api) -> bool {
    api.turns.generator.engine().health().is_ok()
}

/// Routers that know no other path stop sending requests to a server which says so.
fn status(api: &Api) -> StatusCode {
    error::health(is_alive(api) && api.readiness.is_ready())
}

/// Empty: 200 while the engine lives, 503 once it does not, or once the server was told to stop.
#[utoipa::path(get, path = "/health", tag = "server", responses((status = 200), (status = 503)))]
async fn health(State(api): State<Arc<Api>>) -> StatusCode {
    status(&api)
}

/// Empty: 200 while the engine lives, 503 once it does not, so that the server has to be started anew.
#[utoipa::path(get, path = "/livez", tag = "server", responses((status = 200), (status = 503)))]
async fn livez(State(api): State<Arc<Api>>) -> StatusCode {
    error::health(is_alive(&api))
}

/// The same as `/health`: 503 also once the server was told to stop, although it still answers (`--shutdown-delay`).
#[utoipa::path(get, path = "/readyz", tag = "server", responses((status = 200), (status = 503)))]
async fn readyz(State(api): State<Arc<Api>>) -> StatusCode {
    status(&api)
}

/// The same as `/health`, where `SageMaker` looks for it.
#[utoipa::path(get, path = "/ping", tag = "server", responses((status = 200), (status = 503)))]
async fn ping(State(api): State<Arc<Api>>) -> StatusCode {
    status(&api)
}

/// The same as `/health`.
#[utoipa::path(post, path = "/ping", tag = "server", responses((status = 200), (status = 503)))]
async fn ping_post(State(api): State<Arc<Api>>) -> StatusCode {
    status(&api)
}

/// The server's version.
#[utoipa::path(get, path = "/version", tag = "server", responses((status = 200, body = Version)))]
async fn version() -> Json<Version> {
    Json(Version { version: env!("CARGO_PKG_VERSION") })
}

/// Who publishes what happens in the cache of keys and values, by rank: empty where nobody does.
#[utoipa::path(get, path = "/kv_event_sources", tag = "server", responses((status = 200, body = BTreeMap<String, KvEventSource>)))]
async fn kv_event_sources(State(api): State<Arc<Api>>) -> Json<BTreeMap<String, KvEventSource>> {
    Json(api.kv_events.iter().map(|source| ("0".to_owned(), source.clone())).collect())
}
