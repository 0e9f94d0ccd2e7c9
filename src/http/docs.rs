//! `/docs` and `/openapi.json`; the page is built in and needs no network.

use axum::{Router, response::Redirect, routing::get};
use utoipa::openapi::{OpenApi, Server};
use utoipa_swagger_ui::{Config, SwaggerUi};

/// The settings of the pages that describe the API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Docs {
    /// Whether the pages are served.
    pub shown: bool,
    /// The path that a proxy puts in front of all paths.
    pub root_path: String,
}

/// Returns the paths of the pages.
pub(crate) fn pages(docs: &Docs) -> &'static [&'static str] {
    if docs.shown { &["/docs", "/redoc", "/openapi.json"] } else { &[] }
}

pub(crate) fn router<S: Clone + Send + Sync + 'static>(mut document: OpenApi, docs: &Docs) -> Router<S> {
    if !docs.shown {
        return Router::new();
    }
    let root = docs.root_path.trim_end_matches('/');
    if !root.is_empty() {
        document.servers = Some(vec![Server::new(root)]);
    }
    let config = Config::new([format!("{root}/openapi.json")]);
    let page: Router<S> = SwaggerUi::new("/docs").url("/openapi.json", document).config(config).into();
    let target = format!("{root}/docs");
    page.route("/redoc", get(move || std::future::ready(Redirect::permanent(&target))))
}
