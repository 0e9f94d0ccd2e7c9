//! `POST /v1/completions`.

pub(super) mod request;
pub(super) mod response;

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use futures::TryStreamExt;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Api,
    fields::delivery::AnswerDelivery,
    http::{caller::Caller, json_body::JsonBody, sse},
};
use crate::{
    generation::{batched, collect},
    turn::{Asker, Prepared},
    wire::{
        completions::types::{CompletionAnswer, CompletionChunk, CompletionRequest},
        error::ApiError,
    },
};
use request::CompletionTurn;
use response::{CompletionChunks, CompletionEnvelope};

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(create_completion))
}

/// Continues texts or token ids.
#[utoipa::path(
    post,
    path = "/v1/completions",
    tag = "generation",
    request_body = CompletionRequest,
    responses(
        (status = 200, description = "The answer, or with `stream` a series of chunks", content(
            (CompletionAnswer = "application/json"),
            (CompletionChunk = "text/event-stream"),
        )),
    )
)]
async fn create_completion(
    State(api): State<Arc<Api>>,
    caller: Caller,
    JsonBody(request): JsonBody<CompletionRequest>,
) -> Result<Response, ApiError> {
    complete(api, caller, request).await
}

/// Answers a valid body.
pub(super) async fn complete(api: Arc<Api>, caller: Caller, request: CompletionRequest) -> Result<Response, ApiError> {
    let mut turn = CompletionTurn::new(request, &caller, &api).await?;
    if turn.delivery == AnswerDelivery::Json {
        api.turns.check_answer_size(&turn.sampling, turn.prompts.iter().map(|prompt| prompt.token_ids.len()))?;
    }
    let prepared = prepared(&caller, &mut turn, &api).await?;
    let (choices, delivery, stream_interval) =
        (turn.prompts.len() * turn.sampling.n, turn.delivery, turn.stream_interval);
    let events = api.turns.start(prepared).map_err(ApiError::from);
    let envelope = CompletionEnvelope::new(Arc::clone(&api), turn);
    match delivery {
        AnswerDelivery::Json => Ok(Json(envelope.answer(&collect(events, choices).await?)?).into_response()),
        AnswerDelivery::Stream { include_usage, continuous_usage } => {
            let events = batched(events, stream_interval, choices);
            Ok(sse::respond(events, CompletionChunks::new(envelope, include_usage, continuous_usage)))
        }
    }
}

async fn prepared(caller: &Caller, turn: &mut CompletionTurn, api: &Api) -> Result<Vec<Prepared>, ApiError> {
    let asker = Asker { client: caller.client, session: turn.session.as_deref() };
    let mut prepared = Vec::with_capacity(turn.prompts.len());
    for (index, prompt) in turn.prompts.iter().enumerate() {
        // Each prompt has an id of its own, as in vLLM.
        let names = vec![turn.id.as_str().into(), format!("{}-{index}", turn.id).into()];
        prepared.push(api.turns.prepare_ids(asker, &prompt.token_ids, &mut turn.sampling, names).await?);
    }
    Ok(prepared)
}
