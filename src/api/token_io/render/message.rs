//! `POST /v1/messages/render`: turns a conversation in Anthropic's dialect into a request in token ids.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use serde_json::json;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{ChatBefore, RenderBody, RenderFields, Rendering, chat};
use crate::{
    api::messages::{
        error::{MessagesError, MessagesErrorBody},
        request::MessagesTurn,
    },
    http::{caller::Caller, json_body::JsonBodyAndFields},
    state::Api,
    wire::{error::ApiError, messages::types::MessagesRequest, token_io::generate::RenderedRequest},
};

pub(in crate::api::token_io) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(render_message))
}

/// Puts a conversation in Anthropic's dialect into ids.
///
/// The answer is what `/inference/v1/generate` takes. Ids on messages are continued as in `/v1/messages`.
#[utoipa::path(
    post,
    path = "/v1/messages/render",
    tag = "tokens",
    request_body = MessagesRequest,
    responses(
        (status = 200, description = "The request in ids", body = RenderedRequest),
        (status = 400, body = MessagesErrorBody),
    )
)]
async fn render_message(
    State(api): State<Arc<Api>>,
    caller: Caller,
    body: Result<RenderBody<MessagesRequest>, ApiError>,
) -> Result<Response, MessagesError> {
    // What a turn waits with is large.
    Ok(Box::pin(render(&api, caller, body?)).await?)
}

async fn render(api: &Arc<Api>, caller: Caller, body: RenderBody<MessagesRequest>) -> Result<Response, ApiError> {
    let JsonBodyAndFields(request, own) = body;
    let own = as_of_a_chat(own, &request);
    own.check()?;
    let mut rendering = Rendering {
        caller,
        own,
        fields: request.sampling.clone(),
        logprobs: None,
        model: Some(request.model.clone()),
        stream: request.stream.unwrap_or(false),
        stream_options: None,
    };
    let MessagesTurn { id, turn, callable_tools, notices, .. } =
        MessagesTurn::new(request, &rendering.caller, api).await?;
    // Calls are read by what the model was shown anywhere, also by references to tools.
    let tools = callable_tools.filter(|_| turn.prompt.prompt.tools.is_some());
    rendering.own.tools = tools.as_deref().map(chat::tools_as_sent);
    let history = chat::calls(&turn.prompt.prompt.messages);
    Ok(notices.announce(rendering.answer(api, id, turn, Some(ChatBefore::with_calls(history))).await?))
}

/// Puts the fields that a chat has in another form into that form.
fn as_of_a_chat(sent: RenderFields, request: &MessagesRequest) -> RenderFields {
    let has_tools = request.tools.as_ref().is_some_and(|tools| !tools.is_empty());
    let choice = request.tool_choice.as_ref();
    let format = request.output_config.as_ref().and_then(|config| config.format.as_ref());
    let schema = format.or(request.output_format.as_ref()).and_then(|format| format.schema.as_ref());
    RenderFields {
        tool_choice: choice.and_then(|choice| match choice.kind.as_str() {
            "any" | "tool" => Some(json!("required")),
            kind => has_tools.then(|| json!(kind)),
        }),
        parallel_tool_calls: choice.and_then(|choice| choice.disable_parallel_tool_use).map(|disabled| !disabled),
        tools: None,
        include_reasoning: None,
        routed_experts: None,
        response_format: schema
            .map(|schema| json!({ "type": "json_schema", "json_schema": { "schema": schema } }))
            .or(sent.response_format),
        ..sent
    }
}
