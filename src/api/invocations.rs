//! `POST /invocations`, where `SageMaker` sends requests of any kind: a body in the shape of a chat is a chat, and any
//! other one is read as a text completion.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use serde_json::value::RawValue;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    chat_completions::{self, request::refuse_tokens},
    completions,
};
use crate::{
    http::{caller::Caller, json_body::JsonBody},
    state::Api,
    wire::{
        body::{Body, parse_with},
        chat_completions::types::ChatCompletionRequest,
        error::ApiError,
    },
};

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
    let captures_texts = api.turns.captures_texts();
    if let Some(request) = read::<Box<ChatCompletionRequest>>(body, captures_texts)? {
        refuse_tokens(&request)?;
        return chat_completions::complete(api, caller, request).await;
    }
    if let Some(request) = read(body, captures_texts)? {
        return completions::complete(api, caller, request).await;
    }
    let message = "Cannot find suitable handler for request. Expected one of: ['ChatCompletionRequest', \
                   'CompletionRequest']";
    Err(ApiError::invalid_request(message))
}

/// Reads a body, or returns `None` if it does not have the shape of this request.
fn read<T: Body>(body: &[u8], captures_texts: bool) -> Result<Option<T>, ApiError> {
    parse_with(body, captures_texts)
        .map(Some)
        .or_else(|error| if error.is_about_shape() { Ok(None) } else { Err(error) })
}
