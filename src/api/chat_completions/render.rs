//! `POST /v1/chat/completions/render`: the request that a chat completion would be, in token ids.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde_json::value::RawValue;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{request::ChatTurn, types::ChatCompletionRequest};
use crate::api::{
    Api,
    error::ApiError,
    extract::{JsonBody, parse},
    generate::{Rendered, RenderedRequest},
    render::{RenderFields, token_offsets},
};

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
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
    headers: HeaderMap,
    JsonBody(body): JsonBody<Box<RawValue>>,
) -> Result<Response, ApiError> {
    let request: ChatCompletionRequest = parse(body.get().as_bytes())?;
    let render: RenderFields = parse(body.get().as_bytes())?;
    render.check()?;
    let fields = request.sampling.clone();
    let logprobs = (request.logprobs == Some(true)).then(|| request.top_logprobs.unwrap_or(0));
    let (model, stream) = (request.model.clone(), request.stream.unwrap_or(false));
    let stream_options = request.stream_options.filter(|_| stream).map(Into::into);
    let mut turn = ChatTurn::new(ChatCompletionRequest { tokens: None, ..request }, &headers, &api)?;
    let prompt = api.prompt(turn.prompt).await?;
    let sequences = api.sequences(&prompt.token_ids, &mut turn.sampling).await?;
    if turn.sampling.is_constrained() && render.structured_outputs().is_none() {
        let message = "tools that are `strict` cannot be rendered: ask for the chat completion itself";
        return Err(ApiError::invalid("tools", message));
    }
    let rendered = Rendered {
        fields: &fields,
        sampling: &turn.sampling,
        max_tokens: sequences.first().map_or(0, |sequence| sequence.sampling.max_tokens),
        logprobs,
        stream,
        structured_outputs: render.structured_outputs(),
    };
    let offsets = render.return_token_offsets == Some(true);
    let answer = RenderedRequest {
        request_id: turn.id,
        token_offsets: if offsets { token_offsets(&api, &prompt.token_ids) } else { None },
        token_ids: prompt.token_ids.to_vec(),
        sampling_params: rendered.params(&api.sampling),
        model,
        stream,
        stream_options,
        cache_salt: fields.cache_salt.clone(),
        priority: render.priority.unwrap_or(0),
        ..RenderedRequest::default()
    };
    Ok(prompt.verdict.announce(Json(answer).into_response()))
}
