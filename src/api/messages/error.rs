//! Errors in Anthropic's shape. Their statuses and sentences are those of every other endpoint; clients tell them apart by
//! Anthropic's own names for their kinds, which follow from the statuses.

use axum::{
    Json,
    body::Body,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::wire::error::{ApiError, ErrorDetail};

/// An error of the endpoints in Anthropic's dialect.
#[derive(Debug)]
pub(in crate::api) struct MessagesError(ApiError);

impl From<ApiError> for MessagesError {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

/// Marks answers that are errors in Anthropic's shape.
#[derive(Debug, Clone, Copy)]
pub(super) struct InShape;

/// The body of an error, and the data of the event that ends a stream with one.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct MessagesErrorBody {
    /// Always `error`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// What went wrong.
    error: MessagesErrorDetail,
}

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
struct MessagesErrorDetail {
    /// The kind of error, in Anthropic's words.
    #[serde(rename = "type")]
    kind: &'static str,
    /// A sentence for people.
    message: String,
    /// In an event inside a stream, which has no header `X-Retry`: where the same request may be sent, `never`, `here`,
    /// `elsewhere` or `anywhere`.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<&'static str>,
    /// Beside `retry`: `nothing`, or `maybe` if something may have been sampled, stored or changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<&'static str>,
}

/// Returns Anthropic's name of the errors with a status (vLLM 0.33, `anthropic/protocol.py`).
fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

impl From<&ApiError> for MessagesErrorBody {
    fn from(error: &ApiError) -> Self {
        Self::of(error.body().error)
    }
}

impl MessagesErrorBody {
    fn of(detail: ErrorDetail) -> Self {
        let ErrorDetail { message, code, retry, done, .. } = detail;
        Self { kind: "error", error: MessagesErrorDetail { kind: kind(code), message, retry, done } }
    }

    /// Makes the body of an error of which only the status and the sentence are known.
    pub(super) fn of_status(status: u16, message: String) -> Self {
        Self { kind: "error", error: MessagesErrorDetail { kind: kind(status), message, retry: None, done: None } }
    }

    /// Returns the data of an event inside a stream.
    pub(super) fn event(error: &ApiError) -> Self {
        Self::of(error.event().error)
    }
}

impl IntoResponse for MessagesError {
    fn into_response(self) -> Response {
        let (_, body) = Json(MessagesErrorBody::from(&self.0)).into_response().into_parts();
        let (mut parts, _) = self.0.into_response().into_parts();
        parts.extensions.insert(InShape);
        Response::from_parts(parts, Body::new(body))
    }
}
