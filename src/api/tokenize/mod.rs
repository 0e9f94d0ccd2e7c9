//! `POST /tokenize` and `/detokenize`, also under `/v1`: the ids that a chat or a completion would start from, and the
//! text of ids.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    engine::Adapter,
    http::{caller::Caller, hidden_parts::announce_hidden, json_answer::JsonAnswer, json_body::JsonBody},
    request_fields::{
        conversation::{CarrierFields, Conversation},
        media_settings::refuse_media_settings,
    },
    state::Api,
    tokenizer::Extent,
    turn::in_flight,
    wire::{
        answer::{mm_placeholders::MmPlaceholders, token_continuity::TokenContinuity},
        error::{ApiError, validation::missing},
        fields::cache_salt::cache_salt,
        tokenize::types::{DetokenizeRequest, DetokenizeResponse, TokenizeRequest, TokenizeResponse},
    },
};

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(tokenize))
        .routes(routes!(detokenize))
        .routes(routes!(tokenize_v1))
        .routes(routes!(detokenize_v1))
}

impl TokenizeRequest {
    fn into_conversation(self, adapter: Option<Arc<Adapter>>) -> Result<Conversation, ApiError> {
        Ok(Conversation {
            messages: self.messages.unwrap_or_default(),
            carriers: CarrierFields {
                required_prefix_token_ids: self.required_prefix_token_ids,
                prompt_token_ids: self.prompt_token_ids,
                input_ids: None,
                tokens: None,
                kv_transfer_params: self.kv_transfer_params,
                session_id: self.session_id,
                vllm_xargs: None,
                prompt_cache_key: self.prompt_cache_key,
                return_token_continuity: self.return_token_continuity,
            },
            tools: self.tools,
            documents: self.documents,
            reasoning_effort: self.reasoning_effort,
            add_generation_prompt: self.add_generation_prompt,
            continue_final_message: self.continue_final_message,
            add_special_tokens: self.add_special_tokens,
            chat_template: self.chat_template,
            chat_template_kwargs: self.chat_template_kwargs,
            stop_token_ids: self.stop_token_ids.unwrap_or_default(),
            stop_strings: Vec::new(),
            cache_salt: cache_salt(self.cache_salt.as_ref())?,
            adapter,
            said: None,
        })
    }
}

/// Puts a conversation or a text into ids, as a chat or text completion would.
#[utoipa::path(post, path = "/tokenize", tag = "tokens", request_body = TokenizeRequest, responses(
    (status = 200, body = TokenizeResponse)
))]
async fn tokenize(
    State(api): State<Arc<Api>>,
    caller: Caller,
    JsonBody(request): JsonBody<TokenizeRequest>,
) -> Result<Response, ApiError> {
    let adapter = api.models.find(request.model.as_deref()).await?;
    refuse_media_settings(request.mm_processor_kwargs.as_ref(), request.media_io_kwargs.as_ref())?;
    let wants_strings = request.return_token_strs.unwrap_or(false);
    let asks_for_continuity = request.return_token_continuity.unwrap_or(false);
    let (tokens, mm_placeholders, verdict) = match (request.messages.is_some(), &request.prompt) {
        (true, _) => {
            let prompted = api.turns.prompt(request.into_conversation(adapter)?.into_request(&api, &caller)?).await?;
            let placeholders = MmPlaceholders::of(prompted.image_ranges());
            let verdict = TokenContinuity::from(&prompted.verdict);
            (prompted.token_ids.to_vec(), placeholders, Some((verdict, prompted.hidden)))
        }
        (false, Some(_)) => {
            let add_special_tokens = request.add_special_tokens.unwrap_or(true);
            let prompt = request.prompt.unwrap_or_default();
            (api.turns.encode(prompt, add_special_tokens, Extent::Whole).await?, None, None)
        }
        (false, None) => {
            return Err(missing("prompt"));
        }
    };
    // The answer to a first turn has vLLM's own shape, which tests compare as a whole.
    let token_continuity = verdict.as_ref().map(|(verdict, _)| verdict.clone());
    let token_continuity = token_continuity.filter(|verdict| asks_for_continuity || verdict.says_something());
    let written = move || {
        let tokenizer = api.turns.tokenizer();
        let token_strs = wants_strings.then(|| tokens.iter().map(|&id| tokenizer.token(id)).collect());
        let (count, max_model_len) = (tokens.len(), api.turns.max_model_len);
        let answer = TokenizeResponse { count, max_model_len, tokens, token_strs, mm_placeholders, token_continuity };
        JsonAnswer(answer).into_response()
    };
    let response = in_flight::blocking(written).await?;
    Ok(match verdict {
        Some((verdict, hidden)) => announce_hidden(&hidden, verdict.announce(response)),
        None => response,
    })
}

/// Puts ids into text.
#[utoipa::path(post, path = "/detokenize", tag = "tokens", request_body = DetokenizeRequest, responses(
    (status = 200, body = DetokenizeResponse)
))]
async fn detokenize(
    State(api): State<Arc<Api>>,
    JsonBody(request): JsonBody<DetokenizeRequest>,
) -> Result<Json<DetokenizeResponse>, ApiError> {
    api.models.find(request.model.as_deref()).await?;
    let prompt = api.turns.text_of(&request.tokens)?;
    Ok(Json(DetokenizeResponse { prompt }))
}

/// The same as `/tokenize`.
#[utoipa::path(post, path = "/v1/tokenize", tag = "tokens", request_body = TokenizeRequest, responses(
    (status = 200, body = TokenizeResponse)
))]
async fn tokenize_v1(
    state: State<Arc<Api>>,
    caller: Caller,
    body: JsonBody<TokenizeRequest>,
) -> Result<Response, ApiError> {
    tokenize(state, caller, body).await
}

/// The same as `/detokenize`.
#[utoipa::path(post, path = "/v1/detokenize", tag = "tokens", request_body = DetokenizeRequest, responses(
    (status = 200, body = DetokenizeResponse)
))]
async fn detokenize_v1(
    state: State<Arc<Api>>,
    body: JsonBody<DetokenizeRequest>,
) -> Result<Json<DetokenizeResponse>, ApiError> {
    detokenize(state, body).await
}
