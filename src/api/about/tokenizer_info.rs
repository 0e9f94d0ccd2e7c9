//! `GET /tokenizer_info`, with `--enable-tokenizer-info-endpoint`: what `tokenizer_config.json` says.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    http::error,
    state::{Api, TokenizerInfo},
};

pub(in crate::api) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(tokenizer_info))
}

/// The tokenizer's configuration.
#[utoipa::path(get, path = "/tokenizer_info", tag = "tokens", responses(
    (status = 200, description = "The configuration", body = Object),
    (status = 404, description = "The server was started without `--enable-tokenizer-info-endpoint`", body = Object),
))]
async fn tokenizer_info(State(api): State<Arc<Api>>) -> Response {
    match &api.tokenizer_info {
        Some(TokenizerInfo(info)) => Json(info).into_response(),
        None => error::not_found(),
    }
}
