//! `POST /v1/chat/completions/render`: turns a chat completion into a request in token ids.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde_json::value::RawValue;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{RenderFields, Rendering};
use crate::{
    api::{
        Api,
        chat_completions::request::ChatTurn,
        http::{caller::Caller, json_body::JsonBody},
    },
    turn::Turn,
    wire::{
        answer::token_continuity::TokenContinuity, body::parse, chat_completions::types::ChatCompletionRequest,
        error::ApiError, token_io::generate::RenderedRequest,
    },
};

pub(in crate::api::token_io) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(render_chat_completion))
}

/// Puts a chat completion into ids.
///
/// The answer is what `/inference/v1/generate` takes. Ids on messages are continued as in `/v1/chat/completions`.
#[utoipa::path(
    post,
    path = "/v1/chat/completions/render",
    tag = "tokens",
    request_body = ChatCompletionRequest,
    responses(
        (status = 200, description = "The request in ids", body = RenderedRequest),
    )
)]
async fn render_chat_completion(
    State(api): State<Arc<Api>>,
    caller: Caller,
    JsonBody(body): JsonBody<Box<RawValue>>,
) -> Result<Response, ApiError> {
    let request: ChatCompletionRequest = parse(body.get().as_bytes())?;
    let own: RenderFields = parse(body.get().as_bytes())?;
    own.check()?;
    let rendering = Rendering {
        caller,
        own,
        fields: request.sampling.clone(),
        logprobs: (request.logprobs == Some(true)).then(|| request.top_logprobs.unwrap_or(0)),
        model: request.model.clone(),
        stream: request.stream.unwrap_or(false),
        stream_options: request.stream_options,
    };
    let ChatTurn { id, turn, .. } =
        ChatTurn::new(ChatCompletionRequest { tokens: None, ..request }, &rendering.caller, &api)?;
    let Turn { prompt, mut sampling, .. } = turn;
    let prompt = api.turns.prompt(prompt).await?;
    let answer = rendering.request(&api, id, &prompt.token_ids, &mut sampling).await?;
    if sampling.is_constrained() && rendering.own.structured_outputs().is_none() {
        let message = "tools that are `strict` cannot be rendered: ask for the chat completion itself";
        return Err(ApiError::invalid("tools", message));
    }
    Ok(TokenContinuity::from(&prompt.verdict).announce(Json(answer).into_response()))
}
