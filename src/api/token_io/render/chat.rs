//! `POST /v1/chat/completions/render`: turns a chat completion into a request in token ids.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{ChatBefore, RenderBody, Rendering};
use crate::{
    api::chat_completions::request::{ChatTurn, refuse_meta_info, refuse_tokens},
    chat::{FunctionTool, Message},
    http::{caller::Caller, json_body::JsonBodyAndFields},
    json::Value,
    state::Api,
    wire::{chat_completions::types::ChatCompletionRequest, error::ApiError, token_io::generate::RenderedRequest},
};

pub(in crate::api::token_io) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(render_chat_completion))
}

/// Puts a chat completion into ids.
///
/// The answer is what `/inference/v1/generate` takes. Ids on messages are continued as in `/v1/chat/completions`.
#[utoipa::path(
    post,
    path = "/v1/chat/completions/render",
    tag = "tokens",
    request_body = ChatCompletionRequest,
    responses(
        (status = 200, description = "The request in ids", body = RenderedRequest),
    )
)]
async fn render_chat_completion(
    State(api): State<Arc<Api>>,
    caller: Caller,
    JsonBodyAndFields(mut request, own): RenderBody<Box<ChatCompletionRequest>>,
) -> Result<Response, ApiError> {
    own.check()?;
    refuse_meta_info(&request)?;
    refuse_tokens(&request)?;
    let history_tool_call_cnt = calls(&request.messages);
    let ChatCompletionRequest { sglang, sampling, .. } = &mut *request;
    sglang.read_into(sampling)?;
    let mut fields = request.sampling.clone();
    if request.echo == Some(true) {
        // As in vLLM's own chat: what is repeated has log-probs too. A stream has none, and those of alternatives are refused there.
        let repeated = request.top_logprobs.unwrap_or(0);
        let has_any = repeated == 0 || request.stream != Some(true);
        fields.prompt_logprobs = fields.prompt_logprobs.or(has_any.then_some(repeated));
    }
    let rendering = Rendering {
        caller,
        own,
        fields,
        logprobs: (request.logprobs == Some(true)).then(|| request.top_logprobs.unwrap_or(0)),
        model: request.model.clone(),
        stream: request.stream.unwrap_or(false),
        stream_options: request.stream_options,
    };
    let ChatTurn { id, turn, shown, .. } = ChatTurn::new(request, &rendering.caller, &api).await?;
    let before = ChatBefore::with_calls(history_tool_call_cnt).shown(shown, &api);
    rendering.answer(&api, id, turn, Some(before)).await
}

/// Counts the calls that a conversation makes.
pub(super) fn calls(messages: &[Message]) -> usize {
    let made =
        messages.iter().filter(|message| message.role.is_assistant()).filter_map(|message| message.tool_calls.as_ref());
    made.map(Vec::len).sum()
}

/// Returns tools as a chat would send them.
pub(super) fn tools_as_sent(tools: &[FunctionTool]) -> Vec<Value> {
    let tool = |tool: &FunctionTool| {
        let optional = [
            ("description", tool.description.clone().map(Value::from)),
            ("parameters", tool.parameters.clone()),
            ("strict", tool.strict.map(Value::Bool)),
            ("defer_loading", tool.defer_loading.map(Value::Bool)),
        ];
        let optional = optional.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let function: Value = std::iter::once(("name", Value::from(tool.name.as_str()))).chain(optional).collect();
        [("type", Value::from("function")), ("function", function)].into_iter().collect()
    };
    tools.iter().map(tool).collect()
}
