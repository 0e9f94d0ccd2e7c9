//! `/v1/responses/{id}`: responses that are kept.

use std::{collections::HashSet, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::{FromRequestParts, State},
    http::{header, request::Parts},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{background, stream};
use crate::{
    http::{caller::Caller, path::PathParameters, query::QueryParameters},
    json::{Object, Value},
    records::{DIGEST_FIELD, ID_FIELDS, ResponseKey},
    state::Api,
    store::RecordState,
    wire::{
        error::{ApiError, ErrorBody},
        responses::{rules::INCLUDED, types::ResponseObject},
    },
};

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(retrieve_response, delete_response))
        .routes(routes!(cancel_response))
        .routes(routes!(list_input_items))
}

/// How a response is asked for.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
struct Retrieval {
    /// Answer with the events of a response that is or was generated in the background.
    stream: Option<bool>,
    /// The number of the last event that is known.
    starting_after: Option<usize>,
}

impl Retrieval {
    fn of(query: &QueryParameters) -> Result<Self, ApiError> {
        query.only("include", INCLUDED)?;
        Ok(Self { stream: query.truth("stream")?, starting_after: query.number("starting_after")? })
    }
}

/// Reads the id in the path, as one of the caller's.
impl<S: Send + Sync> FromRequestParts<S> for ResponseKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let PathParameters::<String>(id) = PathParameters::from_request_parts(parts, state).await?;
        let Ok(caller) = Caller::from_request_parts(parts, state).await;
        Ok(ResponseKey::of(caller.client, id))
    }
}

/// Answers with JSON text as it was kept.
fn json(text: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text.into()).into_response()
}

/// A response that is kept.
#[utoipa::path(
    get,
    path = "/v1/responses/{response_id}",
    tag = "generation",
    params(("response_id" = String, Path), Retrieval),
    responses(
        (status = 200, description = "The response as far as it is", body = ResponseObject),
        (status = 404, description = "There is no such response", body = ErrorBody),
    )
)]
async fn retrieve_response(
    State(api): State<Arc<Api>>,
    key: ResponseKey,
    query: QueryParameters,
) -> Result<Response, ApiError> {
    let how = Retrieval::of(&query)?;
    let running = api.responses.running(&key);
    if how.stream == Some(true) {
        if let Some(stream) = running.as_ref().and_then(|running| stream::follow(running, how.starting_after)) {
            return Ok(stream);
        }
        if running.is_none() {
            api.responses.get(&key).await?;
            if let Some(frames) = api.responses.events(&key) {
                return Ok(stream::replay(&frames, how.starting_after));
            }
        }
        let message = "only a response that was asked for with `background` and `stream` can be streamed, and only for a \
                       while after its end; without `stream` this is the whole of one that has ended";
        return Err(ApiError::invalid_response("stream", message));
    }
    if let Some(running) = running {
        return Ok(Json(running.response()).into_response());
    }
    let (state, record) = api.responses.get(&key).await?;
    if state == RecordState::Interrupted {
        return Ok(json(interrupted(record.response())));
    }
    Ok(json(record.response().to_owned()))
}

/// Marks a stored response as failed, because the process that generated it is gone.
fn interrupted(response: &str) -> String {
    let Ok(Value::Object(mut fields)) = Value::parse(response) else { return response.to_owned() };
    let error = [
        ("code", "server_error"),
        ("message", "the server stopped, or could not keep the response, while it was generated"),
    ];
    let error = error.into_iter().map(|(key, text)| (key.to_owned(), Value::from(text))).collect::<Object>();
    fields.insert("status".to_owned(), Value::from("failed"));
    fields.insert("error".to_owned(), Value::Object(error));
    Value::Object(fields).to_json_string()
}

/// That a response is gone.
#[derive(Debug, Serialize, ToSchema)]
struct Deletion {
    id: String,
    object: &'static str,
    deleted: bool,
}

/// Forgets a response.
#[utoipa::path(
    delete,
    path = "/v1/responses/{response_id}",
    tag = "generation",
    params(("response_id" = String, Path)),
    responses(
        (status = 200, body = Deletion),
        (status = 404, description = "There is no such response", body = ErrorBody),
    )
)]
async fn delete_response(State(api): State<Arc<Api>>, key: ResponseKey) -> Result<Json<Deletion>, ApiError> {
    api.responses.delete(&key).await?;
    Ok(Json(Deletion { id: key.id().to_owned(), object: "response", deleted: true }))
}

/// Ends a response that is generated in the background.
#[utoipa::path(
    post,
    path = "/v1/responses/{response_id}/cancel",
    tag = "generation",
    params(("response_id" = String, Path)),
    responses(
        (status = 200, description = "The response, cancelled", body = ResponseObject),
        (status = 400, description = "The response has ended, or somebody waits for it", body = ErrorBody),
        (status = 404, description = "There is no such response", body = ErrorBody),
    )
)]
async fn cancel_response(State(api): State<Arc<Api>>, key: ResponseKey) -> Result<Json<ResponseObject>, ApiError> {
    Ok(Json(background::cancel(&api, &key).await?))
}

/// Which items are asked for.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
struct Listing {
    /// The id of an item; those behind it are listed.
    after: Option<String>,
    /// At most this many, 1 to 100 (default 20).
    limit: Option<usize>,
    /// `asc` or `desc` (the default: the latest item first).
    order: Option<String>,
}

impl Listing {
    fn of(query: &QueryParameters) -> Result<Self, ApiError> {
        query.only("include", INCLUDED)?;
        let text = |name| Ok::<_, ApiError>(query.text(name)?.map(str::to_owned));
        Ok(Self { after: text("after")?, limit: query.number("limit")?, order: text("order")? })
    }
}

/// Items, and whether there are more.
#[derive(Debug, Serialize, ToSchema)]
struct ItemList {
    object: &'static str,
    #[schema(value_type = Vec<Object>)]
    data: Vec<Value>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

/// What a response answers: the whole conversation in front of it.
#[utoipa::path(
    get,
    path = "/v1/responses/{response_id}/input_items",
    tag = "generation",
    params(("response_id" = String, Path), Listing),
    responses(
        (status = 200, body = ItemList),
        (status = 404, description = "There is no such response", body = ErrorBody),
    )
)]
async fn list_input_items(
    State(api): State<Arc<Api>>,
    key: ResponseKey,
    query: QueryParameters,
) -> Result<Json<ItemList>, ApiError> {
    let asked = Listing::of(&query)?;
    let (_, record) = api.responses.get(&key).await?;
    let items = record.input.iter().enumerate();
    let mut items =
        items.map(|(index, item)| listed_item(item.get(), key.id(), index)).collect::<Result<Vec<_>, _>>()?;
    tell_apart(&mut items, key.id());
    match asked.order.as_deref() {
        None | Some("desc") => items.reverse(),
        Some("asc") => {}
        Some(_) => return Err(ApiError::invalid_response("order", "`order` is `asc` or `desc`")),
    }
    let limit = asked.limit.unwrap_or(20);
    if !(1..=100).contains(&limit) {
        return Err(ApiError::invalid_response("limit", "`limit` is a number from 1 to 100"));
    }
    if let Some(after) = &asked.after {
        let place = items.iter().position(|item| item_id(item).as_ref() == Some(after));
        let place = place.ok_or_else(|| ApiError::invalid_response("after", "`after` is not the id of an item"))?;
        items.drain(..=place);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let (first_id, last_id) = (items.first().and_then(item_id), items.last().and_then(item_id));
    Ok(Json(ItemList { object: "list", data: items, first_id, last_id, has_more }))
}

/// Gives an id of its own to every item whose id another item has, because clients continue a list after an id.
fn tell_apart(items: &mut [Value], response_id: &str) {
    let mut seen = HashSet::new();
    for (index, item) in items.iter_mut().enumerate() {
        let Some(id) = item_id(item) else { continue };
        if !seen.insert(id)
            && let Value::Object(fields) = item
        {
            fields.insert("id".to_owned(), Value::String(listed_id("item", response_id, index)));
        }
    }
}

fn listed_id(prefix: &str, response_id: &str, index: usize) -> String {
    let suffix = response_id.rsplit('_').next().unwrap_or_default();
    format!("{prefix}_{suffix}_{index}")
}

fn item_id(item: &Value) -> Option<String> {
    item.get("id")?.as_str().map(str::to_owned)
}

/// Makes the form of an item that lists show. An item that came without an id gets one that stays the same.
fn listed_item(item: &str, response_id: &str, index: usize) -> Result<Value, ApiError> {
    let Value::Object(mut fields) = Value::parse(item).map_err(|error| ApiError::internal(format!("{error:?}")))?
    else {
        return Err(ApiError::internal("a stored item is no object"));
    };
    fields.retain(|key, _| key != DIGEST_FIELD && !ID_FIELDS.contains(&key.as_str()));
    let kind = fields.entry("type".to_owned()).or_insert_with(|| Value::from("message"));
    let prefix = match kind.as_str().unwrap_or_default() {
        "message" => "msg",
        "reasoning" => "rs",
        "function_call" | "function_call_output" => "fc",
        _ => "item",
    };
    let id = fields.entry("id".to_owned()).or_insert_with(|| Value::Null);
    if id.is_null() {
        *id = Value::String(listed_id(prefix, response_id, index));
    }
    if let Some(Value::String(text)) = fields.get("content") {
        let kind =
            if fields.get("role").and_then(Value::as_str) == Some("assistant") { "output_text" } else { "input_text" };
        let part = [("type", kind), ("text", text.as_str())];
        let part = part.into_iter().map(|(key, text)| (key.to_owned(), Value::from(text))).collect();
        fields.insert("content".to_owned(), Value::Array(vec![Value::Object(part)]));
    }
    fields.entry("status".to_owned()).or_insert_with(|| Value::from("completed"));
    Ok(Value::Object(fields))
}
