//! `POST /inference/v1/abort_requests`: ends requests of any generation endpoint by their ids, if they are the caller's
//! own.

use std::sync::Arc;

use axum::extract::State;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    http::{caller::Caller, json_body::JsonBody},
    state::Api,
    wire::{error::ApiError, token_io::abort::AbortRequest},
};

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(abort_requests))
}

/// Ends requests with what they have: they are answered with a 200, and their `finish_reason` is `abort`.
#[utoipa::path(post, path = "/inference/v1/abort_requests", tag = "server", request_body = AbortRequest, responses(
    (status = 200, description = "Nothing: the requests end, as far as they run"),
))]
async fn abort_requests(
    State(api): State<Arc<Api>>,
    caller: Caller,
    JsonBody(request): JsonBody<AbortRequest>,
) -> Result<(), ApiError> {
    let Some(ids) = request.request_ids else {
        return Err(ApiError::malformed(None, "Missing 'request_ids' in request body"));
    };
    let ended = api.turns.generator.running().abort(caller.client.owner().as_ref(), ids.iter().map(String::as_str));
    tracing::debug!(ended, "requests aborted");
    Ok(())
}
