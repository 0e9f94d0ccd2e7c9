//! `POST /v1/messages` and `POST /v1/messages/count_tokens`: Anthropic's dialect of a chat.
//!
//! A request becomes the same [`Conversation`](crate::request_fields::conversation::Conversation) as a chat, so that it has the
//! same ids; the continuity cache continues the conversations of clients that send no ids back.

mod blocks;
pub(super) mod error;
mod input;
pub(super) mod outside;
mod references;
pub(super) mod request;
mod stream;
mod tools;

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderName, HeaderValue},
    response::{IntoResponse, Response},
};
use futures::{Stream, StreamExt, TryStreamExt};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    generation::{Event, batched},
    http::{caller::Caller, hidden_parts::announce_hidden, json_answer::JsonAnswer, json_body::JsonBody},
    state::Api,
    turn::{PreparedTurn, PromptRequest, Turn},
    wire::{
        answer::token_continuity::TokenContinuity,
        error::ApiError,
        messages::{
            answer::{AnswerMessage, CountedContext, MessageEvent, TokenCount},
            fold::MessageFold,
            types::{CountTokensRequest, MessagesRequest},
        },
    },
};
use blocks::Blocks;
use error::{MessagesError, MessagesErrorBody};
use request::{MessagesTurn, counted_turn};

/// The header that names a request to Anthropic's clients, which show it in their errors.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(create_message)).routes(routes!(count_message_tokens))
}

/// Continues a conversation in Anthropic's dialect.
///
/// Messages that carry `prompt_token_ids` and `generation_token_ids` are continued from exactly those ids; others from
/// what the server remembers of them.
#[utoipa::path(
    post,
    path = "/v1/messages",
    tag = "generation",
    request_body = MessagesRequest,
    responses(
        (status = 200, description = "The answer, or with `stream` a series of events", content(
            (AnswerMessage = "application/json"),
            (MessageEvent = "text/event-stream"),
        )),
        (status = 400, body = MessagesErrorBody),
    )
)]
async fn create_message(
    State(api): State<Arc<Api>>,
    caller: Caller,
    request: Result<JsonBody<MessagesRequest>, ApiError>,
) -> Result<Response, MessagesError> {
    let JsonBody(request) = request?;
    Ok(answer(api, &caller, request).await?)
}

/// Counts the tokens of a prompt.
#[utoipa::path(
    post,
    path = "/v1/messages/count_tokens",
    tag = "tokens",
    request_body = CountTokensRequest,
    responses(
        (status = 200, description = "The tokens that the model would see", body = TokenCount),
        (status = 400, body = MessagesErrorBody),
    )
)]
async fn count_message_tokens(
    State(api): State<Arc<Api>>,
    caller: Caller,
    request: Result<JsonBody<CountTokensRequest>, ApiError>,
) -> Result<Response, MessagesError> {
    let JsonBody(CountTokensRequest(request)) = request?;
    Ok(count(&api, &caller, request).await?)
}

async fn count(api: &Api, caller: &Caller, request: MessagesRequest) -> Result<Response, ApiError> {
    let MessagesTurn { turn: Turn { prompt, mut sampling, .. }, notices, .. } =
        counted_turn(request, caller, api).await?;
    api.turns.check_thinking_budget(&sampling)?;
    // All tokens of the prompt are counted, even if the context holds fewer.
    let prompt = api.turns.prompt(PromptRequest { must_fit: false, ..prompt }).await?;
    api.turns.structured.constrain(&mut sampling, &prompt.token_ids, api.turns.vocab_size()).await?;
    let tokens = prompt.token_ids.len();
    let context_management = CountedContext { original_input_tokens: tokens };
    let count = TokenCount { input_tokens: tokens, context_management };
    let response = TokenContinuity::from(&prompt.verdict).announce(JsonAnswer(count));
    Ok(notices.announce(announce_hidden(&prompt.hidden, response)))
}

async fn answer(api: Arc<Api>, caller: &Caller, request: MessagesRequest) -> Result<Response, ApiError> {
    let MessagesTurn { id, turn, tool_choice, notices, stream_interval, stream, .. } =
        MessagesTurn::new(request, caller, &api).await?;
    let PreparedTurn { prepared, prompt, sampling } = api.turns.prepare(turn).await?;
    if prompt.is_cut && (sampling.return_token_ids || sampling.tokens_as_ids) {
        let message = "the prompt is too long and is cut off, and a message carries the ids of its whole conversation: leave out \
                       `return_token_ids`, or `truncate_prompt_tokens`";
        return Err(ApiError::invalid("truncate_prompt_tokens", message));
    }
    let events = api.turns.start([prepared])?.map_err(ApiError::from);
    let name = HeaderValue::from_str(&id).ok();
    let blocks = Blocks::new(&api, id, &prompt, &sampling, (tool_choice, notices.clone()));
    let mut response = if stream {
        stream::respond(batched(events, stream_interval, 1), blocks)
    } else {
        JsonAnswer(collect_message(events, blocks).await?).into_response()
    };
    if let Some(name) = name {
        response.headers_mut().insert(REQUEST_ID, name);
    }
    let response = TokenContinuity::from(&prompt.verdict).announce(response);
    Ok(notices.announce(announce_hidden(&prompt.hidden, response)))
}

/// Makes the JSON answer, to which the events of a stream would add up.
async fn collect_message(
    events: impl Stream<Item = Result<(usize, Event), ApiError>>,
    mut blocks: Blocks,
) -> Result<AnswerMessage, ApiError> {
    let mut events = std::pin::pin!(events);
    let (mut fold, mut called) = (MessageFold::default(), false);
    while let Some(item) = events.next().await {
        let (_, event) = item?;
        called |= matches!(&event, Event::Delta(delta) if !delta.tool_calls.is_empty());
        blocks.push(event).into_iter().for_each(|event| fold.push(event));
    }
    blocks.count_calls("non_streaming", called);
    fold.into_ended().ok_or_else(|| ApiError::internal("a message did not end"))
}
