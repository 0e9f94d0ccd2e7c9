//! The public HTTP API: one folder or file for each endpoint of OpenAI, Anthropic and vLLM, and the table of all routes.
//!
//! A handler reads a request, lets `turn` make a turn of it, and answers; the shapes are in `wire`. What all handlers share
//! is below: `http`, `state`, `request_fields`. Other servers' dialects have rooms of their own, whose routes are merged
//! here. Logic that does not depend on a wire shape does not belong here.

mod about;
mod chat_completions;
mod completions;
mod invocations;
mod messages;
mod responses;
mod token_io;
mod tokenize;

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{Request, State},
    http::{Method, header::ALLOW},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

pub(crate) use about::server_load::GENERATING;
pub(crate) use messages::outside::{in_dialect, is_messages_path};

use crate::{
    http::{
        docs::{self, Docs},
        document::{self, Document},
        error,
        json_body::CapturesTexts,
        slashes::Paths,
    },
    inspect, sglang,
    state::Api,
    tinker,
};

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
        .merge(inspect::router())
        .merge(about::tokenizer_info::router())
        .merge(about::models::router())
        .merge(about::health::router())
        .merge(about::server_load::router());
    document::complete(router.get_openapi_mut());
    router
}

/// Returns the OpenAPI document of all routes.
pub fn openapi() -> utoipa::openapi::OpenApi {
    routes().into_openapi()
}

/// What is around every route: how many requests are being served, and HEAD.
async fn around(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    refuse_head(request, |request| about::server_load::track(api, request, next)).await
}

/// FastAPI's routes do not answer HEAD where they answer GET, but its pages for people do.
async fn refuse_head<A: Future<Output = Response>>(request: Request, next: impl FnOnce(Request) -> A) -> Response {
    let is_head = request.method() == Method::HEAD;
    let is_page = matches!(request.uri().path(), "/docs" | "/openapi.json" | "/redoc");
    let response = next(request).await;
    if is_head && !is_page && response.status().is_success() {
        return ([(ALLOW, "GET")], error::method_not_allowed().await).into_response();
    }
    response
}

/// Returns all public routes.
pub fn router(api: Arc<Api>, docs: &Docs) -> Router {
    let (routes, document) = routes().split_for_parts();
    let pages: Vec<&str> = docs::pages(docs).iter().copied().chain([inspect::PATH]).collect();
    let paths = Paths::new(&document, &pages);
    let routes = if api.turns.captures_texts() { routes.layer(Extension(CapturesTexts)) } else { routes };
    routes
        .merge(docs::router(document, docs))
        .merge(inspect::page())
        .fallback(move |request: Request| {
            let redirection = paths.redirection(&request);
            async move { redirection.unwrap_or_else(error::not_found) }
        })
        .method_not_allowed_fallback(error::method_not_allowed)
        // Each layer copies all that is within it for every request, so there is one.
        .layer(middleware::from_fn_with_state(Arc::clone(&api), around))
        .with_state(api)
}
