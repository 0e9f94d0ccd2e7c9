//! `POST /inference/v1/generate` and `/inference/v1/abort_requests`: token ids in, token ids out, nothing in between.
//!
//! Shapes, defaults and limits are vLLM 0.32's (`entrypoints/scale_out/token_in_token_out`). The parameters are those
//! of its engine: the model's `generation_config.json` changes none of them, and the only default of `max_tokens` is
//! the room in the context.

mod abort;
mod derender;
mod images;
mod request;
mod response;
mod sampling_params;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use futures::TryStreamExt;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(super) use sampling_params::Rendered;

use crate::{
    generation::collect,
    http::{caller::Caller, json_answer::JsonAnswer, json_body::JsonBody, sse},
    request_fields::delivery::AnswerDelivery,
    state::Api,
    turn::{Asker, NamedPrompt},
    wire::{
        error::ApiError,
        token_io::generate::{GenerateAnswer, GenerateChunk, GenerateRequest},
    },
};
use request::GenerateTurn;
use response::{GenerateChunks, GenerateEnvelope};

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(generate)).merge(abort::router())
}

/// Continues token ids.
///
/// Takes what `/v1/chat/completions/render` gives, and gives what `/v1/chat/completions/derender` takes.
#[utoipa::path(
    post,
    path = "/inference/v1/generate",
    tag = "generation",
    request_body = GenerateRequest,
    responses(
        (status = 200, description = "The answer, or with `stream` a series of chunks", content(
            (GenerateAnswer = "application/json"),
            (GenerateChunk = "text/event-stream"),
        )),
    )
)]
async fn generate(
    State(api): State<Arc<Api>>,
    caller: Caller,
    JsonBody(request): JsonBody<GenerateRequest>,
) -> Result<Response, ApiError> {
    let mut turn = GenerateTurn::new(request, &caller, &api).await?;
    let asker = Asker { client: caller.client, session: turn.session.as_deref() };
    let (token_ids, images) = (Arc::clone(&turn.prompt_token_ids), Arc::clone(&turn.images));
    let prompts = vec![NamedPrompt { token_ids, names: vec![turn.id.as_str().into()], images, recorder: None }];
    let prepared = api.turns.prepare_prompts(asker, prompts, &mut turn.sampling, turn.delivery.into()).await?;
    let (n, delivery) = (turn.sampling.n, turn.delivery);
    // The envelope is made before the first token is sampled; see `GenerateEnvelope::weight_versions`.
    let envelope = GenerateEnvelope::new(Arc::clone(&api), turn);
    let events = api.turns.start(prepared)?.map_err(ApiError::from);
    Ok(match delivery {
        AnswerDelivery::Json => JsonAnswer(envelope.answer(&collect(events, n).await?)?).into_response(),
        AnswerDelivery::Stream { include_usage, continuous_usage } => {
            sse::respond(events, GenerateChunks::new(envelope, n, include_usage, continuous_usage))
        }
    })
}
