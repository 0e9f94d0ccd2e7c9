//! `POST /v1/completions`.

pub(super) mod request;
pub(super) mod response;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use futures::TryStreamExt;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    generation::{batched, collect},
    http::{caller::Caller, json_answer::JsonAnswer, json_body::JsonBody, sse},
    request_fields::delivery::AnswerDelivery,
    request_trace,
    state::Api,
    turn::{Asker, NamedPrompt},
    wire::{
        completions::types::{CompletionAnswer, CompletionChunk, CompletionRequest},
        error::ApiError,
    },
};
use request::{CompletionTurn, Prompt};
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
    request_trace::generates();
    let mut turn = CompletionTurn::new(request, &caller, &api).await?;
    let asker = Asker { client: caller.client, session: turn.session.as_deref() };
    let prompts = named_prompts(&turn);
    let prepared = api.turns.prepare_prompts(asker, prompts, &mut turn.sampling, turn.delivery.into()).await?;
    let (choices, delivery, stream_interval) =
        (turn.prompts.len() * turn.sampling.n, turn.delivery, turn.stream_interval);
    let events = api.turns.start(prepared)?.map_err(ApiError::from);
    let continuity = turn.continuity();
    let envelope = CompletionEnvelope::new(Arc::clone(&api), turn);
    let response = match delivery {
        AnswerDelivery::Json => JsonAnswer(envelope.answer(&collect(events, choices).await?)?).into_response(),
        AnswerDelivery::Stream { include_usage, continuous_usage } => {
            let events = batched(events, stream_interval, choices);
            sse::respond(events, CompletionChunks::new(envelope, include_usage, continuous_usage))
        }
    };
    Ok(match continuity {
        Some(continuity) => continuity.announce(response),
        None => response,
    })
}

/// Each prompt has an id of its own, as in vLLM.
fn named_prompts(turn: &CompletionTurn) -> Vec<NamedPrompt> {
    let named = |(index, prompt): (usize, &Prompt)| NamedPrompt {
        token_ids: Arc::clone(&prompt.token_ids),
        names: vec![turn.id.as_str().into(), format!("{}-{index}", turn.id).into()],
        images: Arc::default(),
        recorder: prompt.recorder.clone(),
    };
    turn.prompts.iter().enumerate().map(named).collect()
}
