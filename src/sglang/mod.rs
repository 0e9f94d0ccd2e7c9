//! SGLang's `POST /generate`, by which slime, miles and rLLM roll out.
//!
//! The names, defaults and answers are SGLang 0.5.23's (`srt/managers/io_struct.py`, `tokenizer_manager.py`). Log-probs are
//! those of `--logprobs-mode`, where SGLang's are those at the temperature; those of prompts are the model's own in both.

mod logprobs;
pub(crate) mod meta_info;
pub(crate) mod plan;
mod request;
mod response;

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use futures::TryStreamExt;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::{
    request::{SglangPrompt, SglangTurn},
    response::{SglangChunks, SglangEnvelope},
};
use crate::{
    generation::collect,
    http::{caller::Caller, json_body::JsonBody, sse},
    request_trace,
    state::Api,
    turn::{Asker, Prepared},
    wire::{
        error::ApiError,
        sglang::generate::{SglangAnswer, SglangGenerateRequest},
    },
};

pub(crate) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(generate_for_sglang))
}

/// Continues texts or token ids, in SGLang's words.
#[utoipa::path(
    post,
    path = "/generate",
    tag = "generation",
    request_body = SglangGenerateRequest,
    responses(
        (status = 200, description = "The answer, or with `stream` a series of events, each with all that there is so far", content(
            (SglangAnswer = "application/json"),
            (SglangAnswer = "text/event-stream"),
        )),
    )
)]
async fn generate_for_sglang(
    State(api): State<Arc<Api>>,
    caller: Caller,
    JsonBody(request): JsonBody<SglangGenerateRequest>,
) -> Result<Response, ApiError> {
    request_trace::generates();
    let mut turn = SglangTurn::new(request, &caller, &api).await?;
    let prepared = prepared(&caller, &mut turn, &api).await?;
    let choices = turn.prompts.len() * turn.n;
    let streams = turn.streams;
    let envelope = SglangEnvelope::new(Arc::clone(&api), turn);
    let events = api.turns.start(prepared)?.map_err(ApiError::from);
    if streams {
        return Ok(sse::respond(events, SglangChunks::new(envelope, choices)));
    }
    Ok(Json(envelope.answer(&collect(events, choices).await?)?).into_response())
}

async fn prepared(caller: &Caller, turn: &mut SglangTurn, api: &Api) -> Result<Vec<Prepared>, ApiError> {
    let asker = Asker { client: caller.client, session: turn.session.as_deref() };
    let mut prepared = Vec::with_capacity(turn.prompts.len());
    let last = turn.plans.len() - 1;
    for (index, SglangPrompt { token_ids, names, .. }) in turn.prompts.iter().enumerate() {
        let plan = &mut turn.plans[index.min(last)];
        let refusal = plan.refusal(turn.prompt_field);
        let ids = Arc::clone(token_ids).into();
        let ready = api.turns.prepare_ids(asker, &ids, &mut plan.sampling, names.clone()).await;
        prepared.push(ready.map_err(refusal)?);
    }
    Ok(prepared)
}
