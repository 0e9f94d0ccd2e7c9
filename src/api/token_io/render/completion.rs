//! `POST /v1/completions/render`: turns a text completion into requests in token ids.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{RenderBody, Rendering};
use crate::{
    TokenId,
    api::completions::request::CompletionTurn,
    http::{caller::Caller, json_answer::JsonAnswer, json_body::JsonBodyAndFields},
    state::Api,
    turn::WholePrompt,
    wire::{
        completions::{prompt_input::PromptInput, types::CompletionRequest},
        error::ApiError,
        token_io::generate::RenderedRequest,
    },
};

pub(in crate::api::token_io) fn router() -> OpenApiRouter<Arc<Api>> {
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
    caller: Caller,
    JsonBodyAndFields(mut request, own): RenderBody<CompletionRequest>,
) -> Result<Response, ApiError> {
    own.check()?;
    request.sglang.read_into(&mut request.sampling)?;
    let mut fields = request.sampling.clone();
    let logprobs = request.logprobs;
    if request.echo == Some(true) {
        fields.prompt_logprobs = fields.prompt_logprobs.or(logprobs);
    }
    let (model, stream) = (request.model.clone(), request.stream.unwrap_or(false));
    let stream_options = request.stream_options;
    let (input, add_special_tokens) = (request.prompt.clone(), request.add_special_tokens.unwrap_or(true));
    let rendering = Rendering { caller, own, fields, logprobs, model, stream, stream_options };
    let mut turn = CompletionTurn::new(request, &rendering.caller, &api).await?;
    let only = turn.prompts.len() == 1;
    let mut rendered = Vec::with_capacity(turn.prompts.len());
    let whole = whole_prompts(input, add_special_tokens);
    for (index, (prompt, whole)) in turn.prompts.iter().zip(whole).enumerate() {
        let id = if only { turn.id.clone() } else { format!("{}-{index}", turn.id) };
        let mut request =
            rendering.request(&api, id, &Arc::clone(&prompt.token_ids).into(), &mut turn.sampling).await?;
        if rendering.shows_offsets() {
            request.token_offsets = api.turns.offsets(whole, turn.truncation, &prompt.token_ids).await?;
        }
        rendered.push(request);
    }
    Ok(match turn.continuity() {
        Some(continuity) => continuity.announce(JsonAnswer(rendered)),
        None => JsonAnswer(rendered).into_response(),
    })
}

/// Returns the prompts of a request as they were sent.
fn whole_prompts(input: Option<PromptInput>, add_special_tokens: bool) -> Vec<WholePrompt> {
    let text = |text| WholePrompt::Text { text, add_special_tokens };
    let ids = |ids: Vec<TokenId>| WholePrompt::Ids(ids.into());
    match input {
        None => Vec::new(),
        Some(PromptInput::Text(one)) => vec![text(one)],
        Some(PromptInput::Texts(several)) => several.into_iter().map(text).collect(),
        Some(PromptInput::Ids(one)) => vec![ids(one)],
        Some(PromptInput::IdLists(several)) => several.into_iter().map(ids).collect(),
    }
}
