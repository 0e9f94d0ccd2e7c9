//! `POST /tokenize` and `/detokenize`, also under `/v1`: the ids that a chat or a completion would start from, and the
//! text of ids.

pub(super) mod rules;

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Api,
    answer::token_continuity::TokenContinuity,
    body::{
        extract::JsonBody,
        validate::{Body, Rules},
    },
    fields::{
        cache_salt::cache_salt,
        conversation::{CarrierFields, Conversation},
    },
    http::{caller::Caller, error::ApiError, validation_error::missing},
};
use crate::{
    TokenId,
    chat::{FunctionTool, Message, TokenIds},
    json::Value,
    tokenizer::Extent,
    turn::in_flight,
};

pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(tokenize))
        .routes(routes!(detokenize))
        .routes(routes!(tokenize_v1))
        .routes(routes!(detokenize_v1))
}

/// A conversation (`messages`) or a text (`prompt`); with both, the conversation counts. Unknown fields are ignored,
/// so the body of a chat request will do.
#[derive(Debug, Deserialize, ToSchema)]
struct TokenizeRequest {
    /// One of the served names; absent or empty is any.
    model: Option<String>,
    /// A text.
    prompt: Option<String>,
    /// A conversation.
    messages: Option<Vec<Message>>,
    /// Let the tokenizer add its own special tokens: true for a text, false for a conversation.
    add_special_tokens: Option<bool>,
    /// Ids that the prompt must start with, whatever the messages carry.
    #[schema(value_type = Option<Vec<u32>>)]
    required_prefix_token_ids: Option<TokenIds>,
    /// The whole prompt: messages are not rendered.
    #[schema(value_type = Option<Vec<u32>>)]
    prompt_token_ids: Option<TokenIds>,
    /// `prompt_token_ids` in it is the whole prompt; everything else is ignored.
    #[schema(value_type = Option<Object>)]
    kv_transfer_params: Option<Value>,
    /// The client's name for the conversation; the header `X-Session-ID` wins.
    session_id: Option<String>,
    /// Taken for `session_id` where that is not given.
    prompt_cache_key: Option<String>,
    /// Report what became of the ids of earlier turns, drift included.
    return_token_continuity: Option<bool>,
    /// Tools that the template may show.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<FunctionTool>>,
    /// Documents that the template may show.
    #[schema(value_type = Option<Vec<Object>>)]
    documents: Option<Vec<Value>>,
    /// How much to think, for templates that read it.
    reasoning_effort: Option<String>,
    /// End with the start of an assistant message (default true).
    add_generation_prompt: Option<bool>,
    /// End inside the last message.
    continue_final_message: Option<bool>,
    /// The template to use, where the server trusts requests with it (`--trust-request-chat-template`).
    #[schema(value_type = Option<String>)]
    chat_template: Option<Value>,
    /// Further variables of the template.
    #[schema(value_type = Option<Object>)]
    chat_template_kwargs: Option<Value>,
    /// Stop tokens of the chat request: they may close a message too.
    stop_token_ids: Option<Vec<TokenId>>,
    /// Continue only conversations of the same salt.
    #[schema(value_type = Option<String>)]
    cache_salt: Option<serde_json::Value>,
    /// Report the vocabulary's own spelling of each token.
    return_token_strs: Option<bool>,
}

impl Body for TokenizeRequest {
    const RULES: &'static Rules = &rules::TOKENIZE_RULES;
}

impl TokenizeRequest {
    fn into_conversation(self) -> Result<Conversation, ApiError> {
        Ok(Conversation {
            messages: self.messages.unwrap_or_default(),
            carriers: CarrierFields {
                required_prefix_token_ids: self.required_prefix_token_ids,
                prompt_token_ids: self.prompt_token_ids,
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
            cache_salt: cache_salt(self.cache_salt.as_ref())?,
        })
    }
}

/// Ids.
#[derive(Debug, Serialize, ToSchema)]
struct TokenizeResponse {
    count: usize,
    max_model_len: usize,
    tokens: Vec<TokenId>,
    token_strs: Option<Vec<Option<String>>>,
    /// Of a conversation that has ids or assistant messages, or on demand.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_continuity: Option<TokenContinuity>,
}

impl IntoResponse for TokenizeResponse {
    /// Writes the same as [`Json`], whose buffer takes three times as long for tens of thousands of ids.
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self) {
            Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => ApiError::internal(error).into_response(),
        }
    }
}

/// Ids to be put into text.
#[derive(Debug, Deserialize, ToSchema)]
struct DetokenizeRequest {
    /// One of the served names; absent or empty is any.
    model: Option<String>,
    /// The ids.
    tokens: Vec<TokenId>,
}

impl Body for DetokenizeRequest {
    const RULES: &'static Rules = &rules::DETOKENIZE_RULES;
}

/// Text.
#[derive(Debug, Serialize, ToSchema)]
struct DetokenizeResponse {
    /// The text, special tokens included.
    prompt: String,
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
    api.models.check(request.model.as_deref())?;
    let wants_strings = request.return_token_strs.unwrap_or(false);
    let asks_for_continuity = request.return_token_continuity.unwrap_or(false);
    let (tokens, verdict) = match (request.messages.is_some(), &request.prompt) {
        (true, _) => {
            let prompted = api.turns.prompt(request.into_conversation()?.into_request(&api, &caller)?).await?;
            (prompted.token_ids.to_vec(), Some(TokenContinuity::from(&prompted.verdict)))
        }
        (false, Some(_)) => {
            let add_special_tokens = request.add_special_tokens.unwrap_or(true);
            let prompt = request.prompt.unwrap_or_default();
            (api.turns.encode(prompt, add_special_tokens, Extent::Whole).await?, None)
        }
        (false, None) => {
            return Err(missing("prompt"));
        }
    };
    // The answer to a first turn has vLLM's own shape, which tests compare as a whole.
    let token_continuity = verdict.clone().filter(|verdict| asks_for_continuity || verdict.says_something());
    let written = move || {
        let tokenizer = api.turns.tokenizer();
        let token_strs = wants_strings.then(|| tokens.iter().map(|&id| tokenizer.token(id)).collect());
        let (count, max_model_len) = (tokens.len(), api.turns.max_model_len);
        TokenizeResponse { count, max_model_len, tokens, token_strs, token_continuity }.into_response()
    };
    let response = in_flight::blocking(written).await?;
    Ok(match verdict {
        Some(verdict) => verdict.announce(response),
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
    api.models.check(request.model.as_deref())?;
    let prompt = api.turns.tokenizer().decode(&request.tokens, false)?;
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
