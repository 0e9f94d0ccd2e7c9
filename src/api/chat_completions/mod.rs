//! `POST /v1/chat/completions`.

mod batch;
pub(super) mod ending;
pub(super) mod request;
pub(super) mod response;
pub(super) mod shown;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use futures::TryStreamExt;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    generation::{batched, collect},
    http::{caller::Caller, hidden_parts::announce_hidden, json_answer::JsonAnswer, json_body::JsonBody, sse},
    request_fields::delivery::AnswerDelivery,
    state::Api,
    turn::PreparedTurn,
    wire::{
        answer::token_continuity::TokenContinuity,
        chat_completions::types::{ChatCompletion, ChatCompletionChunk, ChatCompletionRequest},
        error::{ApiError, validation::missing},
    },
};
use request::{ChatTurn, refuse_tokens};
use response::{ChatChunks, ChatEnvelope};

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(create_chat_completion))
        .routes(routes!(create_chat_completion_from_tokens))
        .merge(batch::router())
}

/// Continues a conversation.
///
/// Messages that carry `prompt_token_ids` and `generation_token_ids` are continued from exactly those ids.
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    tag = "generation",
    request_body = ChatCompletionRequest,
    responses(
        (status = 200, description = "The answer, or with `stream` a series of chunks", content(
            (ChatCompletion = "application/json"),
            (ChatCompletionChunk = "text/event-stream"),
        )),
    )
)]
async fn create_chat_completion(
    State(api): State<Arc<Api>>,
    caller: Caller,
    JsonBody(request): JsonBody<Box<ChatCompletionRequest>>,
) -> Result<Response, ApiError> {
    refuse_tokens(&request)?;
    complete(api, caller, request).await
}

/// Continues a conversation whose prompt is `tokens`, exactly; its messages are not rendered.
///
/// The route that prime-rl and verifiers use.
#[utoipa::path(
    post,
    path = "/v1/chat/completions/tokens",
    tag = "generation",
    request_body = ChatCompletionRequest,
    responses(
        (status = 200, description = "The answer, or with `stream` a series of chunks", content(
            (ChatCompletion = "application/json"),
            (ChatCompletionChunk = "text/event-stream"),
        )),
    )
)]
async fn create_chat_completion_from_tokens(
    State(api): State<Arc<Api>>,
    caller: Caller,
    JsonBody(request): JsonBody<Box<ChatCompletionRequest>>,
) -> Result<Response, ApiError> {
    if request.tokens.is_none() {
        return Err(missing("tokens"));
    }
    complete(api, caller, request).await
}

/// Answers a valid body.
pub(super) async fn complete(
    api: Arc<Api>,
    caller: Caller,
    request: Box<ChatCompletionRequest>,
) -> Result<Response, ApiError> {
    let ChatTurn { id, turn, shown, stream_interval, delivery, notices } =
        ChatTurn::new(request, &caller, &api).await?;
    let PreparedTurn { prepared, prompt, sampling } = api.turns.prepare(turn).await?;
    let events = api.turns.start([prepared])?.map_err(ApiError::from);
    let envelope = ChatEnvelope::new(Arc::clone(&api), id, &prompt, &sampling, shown);
    let response = match delivery {
        AnswerDelivery::Json => JsonAnswer(envelope.answer(collect(events, sampling.n).await?)?).into_response(),
        AnswerDelivery::Stream { include_usage, continuous_usage } => {
            let events = batched(events, stream_interval, sampling.n);
            sse::respond(events, ChatChunks::new(envelope, &sampling, include_usage, continuous_usage))
        }
    };
    let response = TokenContinuity::from(&prompt.verdict).announce(response);
    Ok(notices.announce(announce_hidden(&prompt.hidden, response)))
}
