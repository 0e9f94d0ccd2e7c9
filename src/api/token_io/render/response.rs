//! `POST /v1/responses/render`: turns a response that could be generated into a request in token ids.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use serde_json::{Value, json};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{RenderBody, RenderFields, Rendering};
use crate::{
    api::responses::request::ResponseTurn,
    http::{caller::Caller, json_body::JsonBodyAndFields},
    state::Api,
    wire::{
        error::ApiError,
        responses::types::{ResponsesRequest, TextFormat},
        token_io::generate::RenderedRequest,
    },
};

pub(in crate::api::token_io) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(render_response))
}

/// Puts a response that could be generated into ids.
///
/// The answer is what `/inference/v1/generate` takes. Ids on items, and those of `previous_response_id`, are continued as
/// in `/v1/responses`. Nothing is stored.
#[utoipa::path(
    post,
    path = "/v1/responses/render",
    tag = "tokens",
    request_body = ResponsesRequest,
    responses(
        (status = 200, description = "The request in ids", body = RenderedRequest),
    )
)]
async fn render_response(
    State(api): State<Arc<Api>>,
    caller: Caller,
    JsonBodyAndFields(request, own): RenderBody<ResponsesRequest>,
) -> Result<Response, ApiError> {
    let own = as_of_a_chat(own, &request)?;
    own.check()?;
    let included = request.include.iter().flatten().any(|included| included == "message.output_text.logprobs");
    let rendering = Rendering {
        caller,
        own,
        fields: request.sampling.clone(),
        logprobs: included.then(|| request.top_logprobs.unwrap_or(0)),
        model: request.model.clone(),
        stream: request.stream.unwrap_or(false),
        stream_options: None,
    };
    let turn = ResponseTurn::rendered(request, &rendering.caller, &api).await?;
    let (id, named_here) = (turn.id().to_owned(), turn.names_of_items());
    let notices = turn.notices().clone();
    Ok(notices.announce(rendering.answer(&api, id, turn.turn, None).await.map_err(named_here)?))
}

/// Puts the fields that a chat has in another form into that form.
fn as_of_a_chat(sent: RenderFields, request: &ResponsesRequest) -> Result<RenderFields, ApiError> {
    let format = request.text.as_ref().and_then(|text| text.format.as_ref());
    let response_format = format.map(response_format).transpose()?.or(sent.response_format);
    Ok(RenderFields { response_format, routed_experts: None, ..sent })
}

fn response_format(format: &TextFormat) -> Result<Value, ApiError> {
    let schema = format.schema.as_ref().map(|schema| serde_json::from_str::<Value>(&schema.to_json_string()));
    let schema = schema
        .transpose()
        .map_err(|error| ApiError::invalid("text.format.schema", format!("not a JSON schema: {error}")))?;
    Ok(json!({ "type": format.kind, "json_schema": { "schema": schema } }))
}
