//! `POST /v1/completions/render`: the requests that a text completion would be, in token ids.

use std::sync::Arc;

use axum::{Json, extract::State, http::HeaderMap};
use serde_json::value::RawValue;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{request::CompletionTurn, types::CompletionRequest};
use crate::api::{
    Api,
    error::ApiError,
    extract::{JsonBody, parse},
    generate::{Rendered, RenderedRequest},
    render::{RenderFields, token_offsets},
};

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(render_completion))
}

/// Puts a text completion into ids: one request for each prompt.
///
/// Each is what `/inference/v1/generate` takes.
#[utoipa::path(
    post,
    path = "/v1/completions/render",
    tag = "tokens",
    request_body = CompletionRequest,
    responses(
        (status = 200, description = "The requests in ids", body = Vec<RenderedRequest>),
    )
)]
async fn render_completion(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<Box<RawValue>>,
) -> Result<Json<Vec<RenderedRequest>>, ApiError> {
    let request: CompletionRequest = parse(body.get().as_bytes())?;
    let render: RenderFields = parse(body.get().as_bytes())?;
    render.check()?;
    let mut fields = request.sampling.clone();
    let logprobs = request.logprobs;
    if request.echo == Some(true) {
        fields.prompt_logprobs = fields.prompt_logprobs.or(logprobs);
    }
    let (model, stream) = (request.model.clone(), request.stream.unwrap_or(false));
    let stream_options = request.stream_options.filter(|_| stream).map(Into::into);
    let mut turn = CompletionTurn::new(request, &headers, &api).await?;
    let offsets = render.return_token_offsets == Some(true);
    let only = turn.prompts.len() == 1;
    let mut rendered = Vec::with_capacity(turn.prompts.len());
    for (index, prompt) in turn.prompts.iter().enumerate() {
        let sequences = api.sequences(&prompt.token_ids, &mut turn.sampling).await?;
        let params = Rendered {
            fields: &fields,
            sampling: &turn.sampling,
            max_tokens: sequences.first().map_or(0, |sequence| sequence.sampling.max_tokens),
            logprobs,
            stream,
            structured_outputs: render.structured_outputs(),
        };
        rendered.push(RenderedRequest {
            request_id: if only { turn.id.clone() } else { format!("{}-{index}", turn.id) },
            token_offsets: if offsets { token_offsets(&api, &prompt.token_ids) } else { None },
            token_ids: prompt.token_ids.to_vec(),
            sampling_params: params.params(&api.sampling),
            model: model.clone(),
            stream,
            stream_options,
            cache_salt: fields.cache_salt.clone(),
            priority: render.priority.unwrap_or(0),
            ..RenderedRequest::default()
        });
    }
    Ok(Json(rendered))
}
