//! `POST /invocations`, where `SageMaker` sends requests of any kind: a body in the shape of a chat is a chat, and any
//! other one is read as a text completion.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use serde_json::value::RawValue;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Api, chat_completions, completions,
    http::{caller::Caller, json_body::JsonBody},
};
use crate::wire::error::ApiError;

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(invocations))
}

/// Continues a conversation, or else texts or token ids.
#[utoipa::path(
    post,
    path = "/invocations",
    tag = "generation",
    request_body(content = Object, description = "As for `/v1/chat/completions` or `/v1/completions`"),
    responses(
        (status = 200, description = "As there", content(
            (Object = "application/json"),
            (Object = "text/event-stream"),
        )),
    )
)]
async fn invocations(
    State(api): State<Arc<Api>>,
    caller: Caller,
    JsonBody(body): JsonBody<Box<RawValue>>,
) -> Result<Response, ApiError> {
    let body = body.get().as_bytes();
    if let Some(answer) = chat_completions::answer(&api, &caller, body).await {
        return answer;
    }
    if let Some(answer) = completions::answer(&api, &caller, body).await {
        return answer;
    }
    let message = "Cannot find suitable handler for request. Expected one of: ['ChatCompletionRequest', \
                   'CompletionRequest']";
    Err(ApiError::invalid_request(message))
}
