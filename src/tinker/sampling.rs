//! Sampling requests, and their results.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    enabled::{Enabled, sessions_of},
    request::{TinkerTurn, refusal},
    response,
};
use crate::{
    generation::collect,
    http::{caller::Caller, json_body::JsonBody},
    state::{Api, Served},
    tinker_sessions::{Entered, Promise, Tinker, awaited::Outcome, ids::RequestId},
    turn::{Asker, Delivery, NamedPrompt},
    wire::{
        error::{ApiError, ErrorKind},
        tinker::{
            sample::TinkerSampleRequest,
            sessions::{TinkerFailure, TinkerFuture, TinkerFutureRequest, TinkerTryAgain},
        },
    },
};

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(asample)).routes(routes!(retrieve_future)).routes(routes!(cancel_future))
}

/// Takes a sampling request, whose result is retrieved later.
#[utoipa::path(post, path = "/api/v1/asample", tag = "tinker", request_body = TinkerSampleRequest, responses(
    (status = 200, description = "It is sampled, or was before under this number", body = TinkerFuture),
    (status = 429, description = "The engine, or what waits to be retrieved, is full"), (status = 404, description = "There is no such session, or the server was started without `--tinker-api`")))]
async fn asample(
    State(api): State<Arc<Api>>,
    _: Enabled,
    caller: Caller,
    served: Option<Extension<Served>>,
    JsonBody(request): JsonBody<TinkerSampleRequest>,
) -> Result<Json<TinkerFuture>, ApiError> {
    let tinker = sessions_of(&api)?;
    let (sampler, model) = tinker.model(&request.sampling_session_id, &caller.client.owner())?;
    let id = RequestId { sampler, number: request.seq_id };
    let sequences = usize::try_from(request.num_samples.unwrap_or(1)).unwrap_or(0);
    // Before it is entered: the same request may come twice at once, and the second one is not checked any further.
    api.turns.policies.requests.check_sequences(1, sequences)?;
    let digest = blake3::hash(format!("{request:?}").as_bytes());
    if let Entered::New(promise) = tinker.enter(&id, digest)? {
        let turn = TinkerTurn::new(&request, &model, &api).await?;
        let served = served.map(|Extension(served)| served);
        start(&api, tinker, &caller, turn, (&id, promise, served)).await?;
    }
    let sample_sequence_ids = (0..sequences).map(|index| format!("{id}:{index}")).collect();
    Ok(Json(TinkerFuture { request_id: id.to_string(), sample_sequence_ids }))
}

/// Samples a turn while nobody waits; it counts as `served` until it is sampled.
async fn start(
    api: &Arc<Api>,
    tinker: &Tinker,
    caller: &Caller,
    mut turn: TinkerTurn,
    (id, promise, served): (&RequestId, Promise, Option<Served>),
) -> Result<(), ApiError> {
    let asker = Asker { client: caller.client, session: None };
    let prompt = NamedPrompt {
        token_ids: Arc::clone(&turn.prompt),
        names: vec![id.to_string().into()],
        images: Arc::default(),
        recorder: None,
    };
    let prompts = vec![prompt; turn.prompts];
    let prepared = api.turns.prepare_prompts(asker, prompts, &mut turn.sampling, Delivery::Whole).await;
    let mut prepared = prepared.map_err(refusal)?;
    // Several prompts are one that is sampled several times.
    for (number, prepared) in prepared.iter_mut().enumerate() {
        prepared.count_from(number * turn.sampling.n);
    }
    // An engine that is full says so at once, and the client is to come again.
    let events = api.turns.start(prepared).map_err(|error| come_again(error.into()))?;
    let mut events = events.map_err(ApiError::from);
    let first = match events.next().now_or_never() {
        Some(Some(Err(error))) => return Err(come_again(error)),
        Some(first) => first,
        None => None,
    };
    let events = stream::iter(first).chain(events);
    let (sequences, prompt, shown) = (turn.prompts * turn.sampling.n, turn.prompt.len(), turn.shown);
    let api = Arc::clone(api);
    let outcome = move |sampled| match response::outcome(sampled, &shown, prompt) {
        // An engine that ends its sequences with the server is not well any more.
        Outcome::Gone | Outcome::Failed { is_users: false, .. } if api.turns.generator.engine().health().is_err() => {
            response::stopped()
        }
        outcome => outcome,
    };
    let task = tokio::spawn(async move {
        let sampled = collect(events, sequences).await;
        drop(served);
        promise.keep(outcome(sampled));
    });
    Promise::sampled_by(tinker, id, task.abort_handle());
    Ok(())
}

/// Clients of Tinker wait and come again after a 429 only.
fn come_again(error: ApiError) -> ApiError {
    if error.kind() == ErrorKind::Overloaded { ApiError::new(ErrorKind::TooMany, None, error.message()) } else { error }
}

/// Waits for the result of a sampling request.
#[utoipa::path(post, path = "/api/v1/retrieve_future", tag = "tinker", request_body = TinkerFutureRequest, responses(
    (status = 200, description = "The result in protocol buffers, or in JSON that it is not there yet, or why there is none", content(
        (Vec<u8> = "application/x-protobuf"),
        (TinkerTryAgain = "application/json"),
    )),
    (status = 410, description = "It has expired, or never was"), (status = 404, description = "The server was started without `--tinker-api`")))]
async fn retrieve_future(
    State(api): State<Arc<Api>>,
    _: Enabled,
    caller: Caller,
    JsonBody(request): JsonBody<TinkerFutureRequest>,
) -> Result<Response, ApiError> {
    let TinkerFutureRequest { request_id } = request;
    Ok(match sessions_of(&api)?.outcome(&request_id, &caller.client.owner()).await? {
        Outcome::Done(result) => ([(CONTENT_TYPE, "application/x-protobuf")], result).into_response(),
        Outcome::Failed { error, is_users } => {
            Json(TinkerFailure { error, category: if is_users { "user" } else { "server" } }).into_response()
        }
        Outcome::Pending | Outcome::Gone => {
            Json(TinkerTryAgain { kind: "try_again", request_id, queue_state: "active" }).into_response()
        }
    })
}

/// Ends a sampling request whose result nobody wants.
#[utoipa::path(post, path = "/api/v1/cancel_future", tag = "tinker", request_body = TinkerFutureRequest, responses(
    (status = 200, description = "It is not sampled any more", body = Object), (status = 404, description = "The server was started without `--tinker-api`")))]
async fn cancel_future(
    State(api): State<Arc<Api>>,
    _: Enabled,
    caller: Caller,
    JsonBody(request): JsonBody<TinkerFutureRequest>,
) -> Result<Json<Value>, ApiError> {
    sessions_of(&api)?.give_up(&request.request_id, &caller.client.owner());
    Ok(Json(json!({})))
}
