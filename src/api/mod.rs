//! The public HTTP API: one folder or file for each endpoint, and what all of them answer with.
//!
//! This module owns routes, the error table and server-sent events; the shapes are in `wire`. A handler reads a request,
//! lets `turn` make a turn of it, and answers. Logic that does not depend on a wire shape does not belong here.

mod about;
mod chat_completions;
mod completions;
mod fields;
mod http;
mod inspect;
mod invocations;
mod messages;
mod responses;
mod routed_experts;
mod sglang;
mod tinker;
mod token_io;
mod tokenize;
mod trajectories;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::Request,
    http::{HeaderMap, Method, header::ALLOW},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

pub use self::http::{
    docs::Docs,
    error::{health, method_not_allowed, not_found},
    slashes::Https,
};
pub use crate::wire::error::ApiError;
pub use about::{models::ServedModels, server_load::ServerLoad, tokenizer_info::TokenizerInfo};
pub use tinker::Tinker;
#[cfg(any(test, feature = "internals"))]
pub use tinker::TinkerBounds;
pub use trajectories::Captured;

use self::http::{document::Document, slashes::Paths};
use crate::{
    TokenId,
    records::Responses,
    store::MemoryStore,
    turn::Turns,
    wire::{answer::output::PromptTokensDetails, fields::sampling::known_id},
};

/// The memory that responses may take up, and the time for which they are kept, if no flag sets them.
const RESPONSE_BYTES: u64 = 1 << 24;
const RESPONSE_TTL: Duration = Duration::from_hours(1);

/// Everything that endpoints work with.
pub struct Api {
    /// Makes turns and generates their answers.
    pub turns: Arc<Turns>,
    /// The names under which the model is served.
    pub models: ServedModels,
    /// Whether usage says how much of a prompt was cached.
    pub prompt_tokens_details: bool,
    /// Requests that are being served.
    pub server_load: ServerLoad,
    /// The answer of `/tokenizer_info`, if that endpoint is on.
    pub tokenizer_info: Option<TokenizerInfo>,
    /// Responses that can be retrieved and continued by their ids.
    pub responses: Responses,
    /// The sessions of Tinker's clients, if they are served.
    pub tinker: Option<Arc<Tinker>>,
}

impl Api {
    /// Makes the API of a server without flags: with vLLM's defaults, and with responses kept in memory.
    #[cfg_attr(
        not(any(test, feature = "internals")),
        expect(dead_code, reason = "start-up leaves nothing to a default")
    )]
    pub fn new(turns: Turns, models: ServedModels) -> Self {
        let store = MemoryStore::new(RESPONSE_BYTES, RESPONSE_TTL);
        Self {
            turns: Arc::new(turns),
            models,
            prompt_tokens_details: false,
            server_load: ServerLoad::default(),
            tokenizer_info: None,
            responses: Responses::new(Arc::new(store)),
            tinker: None,
        }
    }

    /// Returns the usage details of a prompt, if they are shown.
    fn prompt_details(&self, cached_tokens: Option<usize>) -> Option<PromptTokensDetails> {
        let details = |cached_tokens| PromptTokensDetails { cached_tokens };
        cached_tokens.filter(|_| self.prompt_tokens_details).map(details)
    }

    /// Returns the ids of a prompt, if the vocabulary has all of them; `field` is the field that they come in. vLLM's own
    /// endpoints refuse others in its words instead.
    fn known_ids(&self, field: &'static str, ids: &[i64]) -> Result<Vec<TokenId>, ApiError> {
        let vocab_size = self.turns.vocab_size();
        let unknown = |id| ApiError::invalid(field, format!("the token id {id} is out of vocabulary"));
        ids.iter().map(|&id| known_id(id, vocab_size).ok_or_else(|| unknown(id))).collect()
    }

    /// Refuses a request for more tokens than the context has; `field` is the field that asks for them.
    fn check_max_tokens(&self, field: &'static str, asked: Option<i64>) -> Result<(), ApiError> {
        let most = self.turns.max_model_len;
        match asked {
            Some(asked) if usize::try_from(asked).is_ok_and(|tokens| tokens > most) => {
                Err(ApiError::too_many_tokens(field, asked, most))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a field that names tokens to be scored at positions of a prompt, where the engine scores no such tokens.
    fn check_scores_candidates(&self, field: &'static str) -> Result<(), ApiError> {
        let engine = self.turns.generator.engine();
        if engine.scores_candidates() {
            return Ok(());
        }
        let name = engine.info().engine;
        let message = format!(
            "the engine `{name}` cannot score the tokens of `{field}` at positions of a prompt; start the server with \
             --engine native"
        );
        Err(ApiError::invalid(field, message))
    }
}

/// Bytes of the longest id that a client may choose: it is in every event of a stream, in logs, and in a header.
const MOST_OF_AN_ID: usize = 512;

/// Returns the id of an answer: the client's own, from the header or the body, or a fresh one.
fn answer_id(prefix: &str, headers: &HeaderMap, request_id: Option<&str>) -> Result<String, ApiError> {
    let header = headers.get("x-request-id").and_then(|value| value.to_str().ok());
    for (field, id) in [("X-Request-Id", header), ("request_id", request_id)] {
        if id.is_some_and(|id| id.len() > MOST_OF_AN_ID) {
            let message = format!("`{field}` is longer than {MOST_OF_AN_ID} bytes");
            return Err(ApiError::invalid(field, message));
        }
    }
    let id = match header.or(request_id).filter(|id| !id.is_empty()) {
        Some(id) => format!("{prefix}-{id}"),
        None => format!("{prefix}-{}", uuid::Uuid::new_v4().simple()),
    };
    tracing::Span::current().record("id", &id);
    Ok(id)
}

fn routes() -> OpenApiRouter<Arc<Api>> {
    let mut router = OpenApiRouter::with_openapi(Document::openapi())
        .merge(chat_completions::router())
        .merge(token_io::chats())
        .merge(about::capability::router())
        .merge(completions::router())
        .merge(token_io::completions())
        .merge(messages::router())
        .merge(token_io::messages())
        .merge(token_io::router())
        .merge(sglang::router())
        .merge(tinker::router())
        .merge(invocations::router())
        .merge(responses::router())
        .merge(token_io::responses())
        .merge(tokenize::router())
        .merge(trajectories::router())
        .merge(about::tokenizer_info::router())
        .merge(about::models::router())
        .merge(about::health::router())
        .merge(about::server_load::router());
    http::document::complete(router.get_openapi_mut());
    router
}

/// Returns the OpenAPI document of all routes.
pub fn openapi() -> utoipa::openapi::OpenApi {
    routes().into_openapi()
}

/// FastAPI's routes do not answer HEAD where they answer GET, but its pages for people do.
async fn refuse_head(request: Request, next: Next) -> Response {
    let is_head = request.method() == Method::HEAD;
    let is_page = matches!(request.uri().path(), "/docs" | "/openapi.json" | "/redoc");
    let response = next.run(request).await;
    if is_head && !is_page && response.status().is_success() {
        return ([(ALLOW, "GET")], http::error::method_not_allowed().await).into_response();
    }
    response
}

/// Returns the routes that show captured trajectories and change nothing, without a model.
pub fn read_only(captured: Captured) -> Router {
    let (routes, _) = trajectories::read_only().split_for_parts();
    routes.merge(inspect::router()).fallback(|| async { http::error::not_found() }).with_state(captured)
}

/// Returns all public routes.
pub fn router(api: Arc<Api>, docs: &Docs) -> Router {
    let (routes, document) = routes().split_for_parts();
    let pages: Vec<&str> = http::docs::pages(docs).iter().copied().chain([inspect::PATH]).collect();
    let paths = Paths::new(&document, &pages);
    routes
        .merge(http::docs::router(document, docs))
        .merge(inspect::router())
        .layer(middleware::from_fn_with_state(Arc::clone(&api), about::server_load::track))
        .fallback(move |request: Request| {
            let redirection = paths.redirection(&request);
            async move { redirection.unwrap_or_else(http::error::not_found) }
        })
        .method_not_allowed_fallback(http::error::method_not_allowed)
        .layer(middleware::from_fn(refuse_head))
        .with_state(api)
}
