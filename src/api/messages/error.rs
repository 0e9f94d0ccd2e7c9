//! Errors in Anthropic's shape. Their statuses, kinds and sentences are those of every other endpoint.

use axum::{
    Json,
    body::Body,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::wire::error::ApiError;

/// An error of the endpoints in Anthropic's dialect.
#[derive(Debug)]
pub(super) struct MessagesError(ApiError);

impl From<ApiError> for MessagesError {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

/// The body of an error, and the data of the event that ends a stream with one.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MessagesErrorBody {
    /// Always `error`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// What went wrong.
    error: MessagesErrorDetail,
}

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
struct MessagesErrorDetail {
    /// The kind of error, in vLLM's words.
    #[serde(rename = "type")]
    kind: &'static str,
    /// A sentence for people.
    message: String,
}

impl From<&ApiError> for MessagesErrorBody {
    fn from(error: &ApiError) -> Self {
        let detail = error.body().error;
        Self { kind: "error", error: MessagesErrorDetail { kind: detail.kind, message: detail.message } }
    }
}

impl IntoResponse for MessagesError {
    fn into_response(self) -> Response {
        let (_, body) = Json(MessagesErrorBody::from(&self.0)).into_response().into_parts();
        let (parts, _) = self.0.into_response().into_parts();
        Response::from_parts(parts, Body::new(body))
    }
}
