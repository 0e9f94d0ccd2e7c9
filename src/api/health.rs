//! Whether the server lives and what it is: `/health`, `/ping`, `/version`.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{Api, error};

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(health)).routes(routes!(ping, ping_post)).routes(routes!(version))
}

/// The server's version.
#[derive(Debug, Serialize, ToSchema)]
struct Version {
    version: &'static str,
}

fn status(api: &Api) -> StatusCode {
    error::health(api.generator.engine().health().is_ok())
}

/// Empty: 200 while the engine lives, 503 once it does not.
#[utoipa::path(get, path = "/health", tag = "server", responses((status = 200), (status = 503)))]
async fn health(State(api): State<Arc<Api>>) -> StatusCode {
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
