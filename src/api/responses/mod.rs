//! `/v1/responses`: conversations in items, which become ids in the same way as a chat.

mod background;
mod input;
mod names;
mod output;
mod places;
pub(super) mod request;
mod retrieve;
mod steps;
mod stored;
mod stream;
mod tools;

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse, Response},
};
use futures::{Stream, StreamExt, TryStreamExt};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    generation::Event,
    http::{caller::Caller, hidden_parts::announce_hidden, json_answer::JsonAnswer, json_body::JsonBody},
    records::{IdReservation, Record},
    state::{Api, Served},
    store::RecordState,
    turn::PreparedTurn,
    wire::{
        answer::token_continuity::TokenContinuity,
        error::{ApiError, ErrorBody},
        responses::{
            events::{Numbered, StreamEvent},
            types::{ResponseObject, ResponsesRequest},
        },
    },
};
use output::{Writer, Written};
use request::ResponseTurn;
use steps::steps;

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(create_response)).merge(retrieve::router())
}

/// Continues a conversation.
///
/// Items that carry `prompt_token_ids` and `generation_token_ids`, and stored responses, are continued from exactly their
/// ids.
#[utoipa::path(
    post,
    path = "/v1/responses",
    tag = "generation",
    request_body = ResponsesRequest,
    responses(
        (status = 200, description = "The response, or with `stream` a series of events", content(
            (ResponseObject = "application/json"),
            (Numbered = "text/event-stream"),
        )),
        (status = 404, description = "The model or the earlier response is not here", body = ErrorBody),
    )
)]
async fn create_response(
    State(api): State<Arc<Api>>,
    caller: Caller,
    served: Option<Extension<Served>>,
    JsonBody(request): JsonBody<ResponsesRequest>,
) -> Result<Response, ApiError> {
    let turn = ResponseTurn::new(request, &caller, &api).await?;
    let named_here = turn.names_of_items();
    let ResponseTurn { turn, shown, stream, background, record, repeated, .. } = turn;
    let prepared = api.turns.prepare(turn).await.map_err(|error| named_here(error.into()));
    let PreparedTurn { prepared, prompt, .. } = prepared?;
    if prompt.is_cut && shown.token_ids {
        return Err(cuts_shown_ids());
    }
    let response = repeated.into_response(&prompt, prepared.params(), &shown, &api)?;
    let notices = response.notices.clone();
    let mut writer = Writer::new(Arc::clone(&api), response, Arc::clone(&prompt.token_ids), shown);
    if prompt.is_cut {
        writer.forget_ids();
    }
    let events = api.turns.start([prepared])?.map_err(ApiError::from);
    let response = match (background, record) {
        (true, Some(record)) => {
            let served = served.map(|Extension(served)| served);
            let (running, queued) =
                background::start(Arc::clone(&api), events, writer, record, (stream, served)).await?;
            stream::follow(&running, None).unwrap_or_else(|| JsonAnswer(queued).into_response())
        }
        (_, record) if stream => stream::respond(keep_record(api, events, writer, record)),
        (_, record) => JsonAnswer(last(keep_record(api, events, writer, record).boxed()).await?).into_response(),
    };
    let response = TokenContinuity::from(&prompt.verdict).announce(response);
    Ok(notices.announce(announce_hidden(&prompt.hidden, response)))
}

/// Makes the refusal of ids that would not be those of the whole conversation.
fn cuts_shown_ids() -> ApiError {
    let message = "the prompt is too long and is cut off, and a response carries the ids of its whole conversation: leave out \
                   `truncation`, or what asks for ids (`include`: [\"token_ids\"], `return_token_ids`, \
                   `return_tokens_as_token_ids`)";
    ApiError::invalid_response("truncation", message)
}

/// Passes on the events of a response; if it is to be kept, that happens before the events that report its end.
fn keep_record(
    api: Arc<Api>,
    events: impl Stream<Item = Result<(usize, Event), ApiError>> + Send + 'static,
    writer: Writer,
    record: Option<(IdReservation, Record)>,
) -> impl Stream<Item = Result<StreamEvent, ApiError>> + Send + 'static {
    let steps = steps(events, writer);
    async_stream::try_stream! {
        let mut steps = std::pin::pin!(steps);
        let mut record = record;
        while let Some(step) = steps.next().await {
            let (event, written) = step?;
            if let Some(Written { response, items, .. }) = written
                && let Some((reservation, mut record)) = record.take()
            {
                api.responses.put(&reservation, RecordState::Done, record.updated(&response, &items)?).await?;
            }
            yield event;
        }
    }
}

/// Returns the response that the last event reports.
async fn last(events: impl Stream<Item = Result<StreamEvent, ApiError>>) -> Result<ResponseObject, ApiError> {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        if let StreamEvent::Completed { response } | StreamEvent::Incomplete { response } = event? {
            return Ok(*response);
        }
    }
    Err(ApiError::internal("a response did not end"))
}
