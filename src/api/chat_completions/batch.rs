//! `POST /v1/chat/completions/batch`: several conversations, one choice each.
//!
//! Follows vLLM 0.32, `chat_completion/batch_serving.py`. Each conversation is served as a request of its own with the
//! same fields, so that ids on its messages are continued as in chat.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use futures::TryStreamExt;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{request::ChatTurn, response::ChatEnvelope};
use crate::{
    chat::Message,
    generation::collect,
    http::{caller::Caller, json_answer::JsonAnswer, json_body::JsonBody},
    json::{Object, Path, Value},
    request_fields::{answer_id::fresh_id, conversation::SESSION_HEADER, delivery::AnswerDelivery},
    state::Api,
    turn::{Delivery, PreparedTurn},
    wire::{
        answer::token_continuity::TokenContinuity,
        body::parse,
        chat_completions::types::{ChatCompletion, ChatCompletionRequest},
        error::{
            ApiError,
            validation::{empty_list, missing_of, not_a_list},
        },
    },
};

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(create_batch_chat_completion))
}

/// Conversations to be continued, with the fields of a chat request that apply to all of them.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what the body is; the body is read conversation by conversation")]
struct BatchChatCompletionRequest {
    /// The conversations; none is empty.
    messages: Vec<Vec<Message>>,
    /// One of the served names; absent or empty is any.
    model: Option<String>,
}

/// Continues several conversations: one choice each, in order.
///
/// Takes the fields of `/v1/chat/completions`, but `stream`, `tools`, `use_beam_search`, an `n` over 1, and what is answered for one
/// prompt (`prompt_logprobs`, `echo` with log-probs, `return_prompt_text`). Of what became of the ids on messages, the worst is told.
#[utoipa::path(
    post,
    path = "/v1/chat/completions/batch",
    tag = "generation",
    request_body = BatchChatCompletionRequest,
    responses(
        (status = 200, description = "The answer", body = ChatCompletion),
    )
)]
async fn create_batch_chat_completion(
    State(api): State<Arc<Api>>,
    mut caller: Caller,
    JsonBody(body): JsonBody<Box<RawValue>>,
) -> Result<Response, ApiError> {
    let mut requests = requests(body.get(), api.turns.policies.requests.max_prompts)?;
    if api.turns.captures_texts() {
        ChatCompletionRequest::take_said_of_batch(&mut requests, body.get());
    }
    // The header would give several conversations the same name.
    caller.headers.remove(SESSION_HEADER);
    let count = requests.len();
    share_id(&mut requests);
    let mut envelopes = Vec::with_capacity(count);
    let mut all = Vec::with_capacity(count);
    let mut verdicts = Vec::with_capacity(count);
    for (index, request) in requests.into_iter().enumerate() {
        let ChatTurn { id, mut turn, shown, delivery, .. } = ChatTurn::new(Box::new(request), &caller, &api).await?;
        if delivery != AnswerDelivery::Json {
            return Err(refuse("stream", "streaming"));
        }
        if shown.routed_experts {
            return Err(refuse("return_routed_experts", "`return_routed_experts`"));
        }
        turn.delivery = Delivery::Together(count);
        turn.names.push(format!("{id}_{index}").into());
        let PreparedTurn { prepared, prompt, sampling } = api.turns.prepare(turn).await?;
        if sampling.prompt_logprobs.is_some() {
            return Err(refuse("echo", "`echo`"));
        }
        all.push(prepared);
        verdicts.push(prompt.verdict.clone());
        envelopes.push(ChatEnvelope::new(Arc::clone(&api), id, &prompt, &sampling, shown));
    }
    // Nothing is sampled before it is known that every conversation can be served.
    let completions = collect(api.turns.start(all)?.map_err(ApiError::from), count).await?;
    // As for the prompts of a completion, the worst one speaks for all.
    let continuity = verdicts.iter().max_by_key(|verdict| verdict.badness()).map(TokenContinuity::from);
    let response = JsonAnswer(ChatEnvelope::answer_batch(&envelopes, completions, continuity.clone())?);
    Ok(match continuity {
        Some(continuity) => continuity.announce(response),
        None => response.into_response(),
    })
}

/// Gives requests without an id one that they share, as in vLLM: the answer has the id of one of them, by which what was captured
/// of all of them is found. A header with an id counts for all of them anyway.
fn share_id(requests: &mut [ChatCompletionRequest]) {
    let id = fresh_id();
    for request in requests.iter_mut().filter(|request| request.request_id.as_ref().is_none_or(String::is_empty)) {
        request.request_id = Some(id.clone());
    }
}

fn refuse(field: &'static str, what: &str) -> ApiError {
    ApiError::invalid(field, format!("Batch chat completions do not support {what}. (parameter={field})"))
}

/// Splits the body into one request for each conversation.
fn requests(body: &str, most: usize) -> Result<Vec<ChatCompletionRequest>, ApiError> {
    // The syntax is checked already, so a body that only Python can read is the only one that fails here.
    let body = Value::parse(body)
        .map_err(|error| ApiError::malformed(Some("body".into()), format!("1 validation error:\n  body: {error}")))?;
    let Value::Object(mut fields) = body else {
        return Err(ApiError::malformed(Some("body".into()), "1 validation error:\n  body: expected an object"));
    };
    check(&fields)?;
    let count = fields.len();
    let conversations = list(fields.shift_remove("messages"), "messages".into(), count)?;
    if conversations.len() > most {
        let message = format!(
            "`messages` has {} conversations, more than the {most} of one batch: send several batches, or start the \
             server with a larger --max-request-prompts",
            conversations.len()
        );
        return Err(ApiError::invalid("messages", message));
    }
    let request = |(index, conversation): (usize, Value)| {
        let messages = list(Some(conversation), Path::from("messages").then(index), count)?;
        let mut fields = fields.clone();
        fields.insert("messages".to_owned(), Value::Array(messages));
        parse(Value::Object(fields).to_json_string().as_bytes())
    };
    conversations.into_iter().enumerate().map(request).collect()
}

/// Returns a list that is not empty, at `place` of a body of `count` fields.
fn list(value: Option<Value>, place: Path, count: usize) -> Result<Vec<Value>, ApiError> {
    match value {
        None => Err(missing_of(place, count)),
        Some(Value::Array(items)) if items.is_empty() => Err(empty_list(place)),
        Some(Value::Array(items)) => Ok(items),
        Some(Value::Object(fields)) => Err(not_a_list(place, &format!("<dict of {} items>", fields.len()))),
        Some(other) => Err(not_a_list(place, &other.to_json_string())),
    }
}

/// Refuses fields that a batch cannot have.
fn check(fields: &Object) -> Result<(), ApiError> {
    let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
    if field("use_beam_search").is_some_and(|value| value.as_bool() != Some(false)) {
        let message = "Batch chat completions do not support beam search. Please set `use_beam_search` to False. \
                       (parameter=use_beam_search)";
        return Err(ApiError::invalid("use_beam_search", message));
    }
    if field("kv_transfer_params").and_then(|params| params.get("prompt_token_ids")).is_some_and(|ids| !ids.is_null()) {
        const PARAM: &str = "kv_transfer_params.prompt_token_ids";

        let message = format!(
            "Batch chat completions do not support `kv_transfer_params['prompt_token_ids']`: one pre-tokenized prompt \
             cannot serve several conversations. (parameter={PARAM})"
        );
        return Err(ApiError::invalid(PARAM, message));
    }
    if let Some(n) = field("n").filter(|n| n.as_i64() != Some(1)) {
        let n = n.to_json_string();
        let message =
            format!("Batch chat completions do not support `n > 1`. Please set `n` to 1. (parameter=n, value={n})");
        return Err(ApiError::invalid("n", message));
    }
    if field("return_prompt_text").is_some_and(|value| value.as_bool() != Some(false)) {
        return Err(refuse("return_prompt_text", "`return_prompt_text`"));
    }
    if field("vllm_xargs").and_then(|extra| extra.get("session_id")).is_some_and(|id| !id.is_null()) {
        return Err(refuse("vllm_xargs.session_id", "`vllm_xargs.session_id`"));
    }
    // These fields name one prompt, one conversation, or tools for all of them, or are answered for one prompt; vLLM ignores them.
    let single = [
        "prompt_token_ids",
        "prompt_logprobs",
        "input_ids",
        "required_prefix_token_ids",
        "routed_experts",
        "tokens",
        "session_id",
        "prompt_cache_key",
        "tools",
    ];
    match single.into_iter().find(|name| field(name).is_some()) {
        Some(name) => Err(refuse(name, &format!("`{name}`"))),
        None => Ok(()),
    }
}
