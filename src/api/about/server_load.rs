//! `GET /load`: the requests that are being served, for routers that balance by it.
//!
//! Follows vLLM 0.32, `entrypoints/serve/utils/api_utils.py` (`load_aware_call`): a request counts until its answer is
//! sent, and a stream until its last event. Routes that vLLM has not count likewise, and what is generated while no client
//! waits counts until it ends.

use std::sync::Arc;

use axum::{
    Json,
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{http::held_body::holding, state::Api};

/// The routes whose requests generate.
pub(crate) const GENERATING: [&str; 10] = [
    "/v1/chat/completions",
    "/v1/chat/completions/tokens",
    "/v1/chat/completions/batch",
    "/v1/completions",
    "/v1/messages",
    "/inference/v1/generate",
    "/v1/responses",
    "/invocations",
    "/generate",
    "/api/v1/asample",
];

/// Other routes on which the model works.
const WORKING: [&str; 3] = [
    "/v1/messages/count_tokens",
    "/v1/trajectories/{trajectory_id}/turns/{turn_id}/replay",
    "/v1/trajectories/{trajectory_id}/turns/{turn_id}/rescore",
];

/// Counts a request on a route on which the model works. A handler that goes on after its answer takes `Held<Served>` out of the
/// extensions.
pub(in crate::api) async fn track(api: Arc<Api>, mut request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let is_counted = path.is_some_and(|path| GENERATING.contains(&path) || WORKING.contains(&path));
    let served = is_counted.then(|| api.server_load.enter()).flatten();
    if let Some(served) = &served {
        request.extensions_mut().insert(served.clone());
    }
    let response = next.run(request).await;
    match served {
        Some(served) => response.map(|body| holding(body, served)),
        None => response,
    }
}

pub(in crate::api) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(load))
}

/// How much is being served.
#[derive(Debug, Serialize, ToSchema)]
struct Load {
    /// Requests; 0 unless the server counts them (`--enable-server-load-tracking`).
    server_load: usize,
}

/// Requests that are being served.
#[utoipa::path(get, path = "/load", tag = "server", responses((status = 200, body = Load)))]
async fn load(State(api): State<Arc<Api>>) -> Json<Load> {
    Json(Load { server_load: api.server_load.requests() })
}

#[cfg(test)]
mod tests {
    use super::{GENERATING, WORKING};

    #[test]
    fn what_is_counted_is_served() {
        let served = crate::api::openapi().paths.paths;
        for path in GENERATING.into_iter().chain(WORKING) {
            assert!(served.contains_key(path), "{path}");
        }
    }
}
