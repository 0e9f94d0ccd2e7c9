//! Redirects paths with one slash too many or too few at their end to the route that they mean.
//!
//! Follows Starlette, on which vLLM stands (`Router.redirect_slashes`): a path that is no route is answered with a 307 to
//! its other spelling if that one is a route, whatever the method, and otherwise with a 404.

use std::sync::Arc;

use axum::{
    extract::{OriginalUri, Request},
    http::{HeaderValue, header, uri::Authority},
    response::{IntoResponse, Redirect, Response},
};
use utoipa::openapi::OpenApi;

/// Marks a request whose client speaks HTTPS, to this server or to a proxy in front of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Https;

/// The paths of all routes, in which `{name}` is any segment.
#[derive(Clone)]
pub(crate) struct Paths(Arc<[String]>);

impl Paths {
    /// Collects the paths of a document, and others.
    pub(crate) fn new<'a>(document: &OpenApi, others: &'a [&'a str]) -> Self {
        Self(document.paths.paths.keys().map(String::as_str).chain(others.iter().copied()).map(str::to_owned).collect())
    }

    fn contain(&self, path: &str) -> bool {
        let is_any = |pattern: &str, segment: &str| pattern.starts_with('{') && !segment.is_empty();
        let matches = |route: &String| {
            let mut segments = route.split('/').zip(path.split('/'));
            route.matches('/').count() == path.matches('/').count()
                && segments.all(|(pattern, segment)| pattern == segment || is_any(pattern, segment))
        };
        self.0.iter().any(matches)
    }

    /// Redirects a path that is no route, if its other spelling is one.
    pub(crate) fn redirection(&self, request: &Request) -> Option<Response> {
        let path = request.uri().path();
        if path == "/" || !self.contain(&respelt(path)) {
            return None;
        }
        redirection(request)
    }
}

/// Returns the path without the slashes at its end, or with one if it has none.
fn respelt(path: &str) -> String {
    if path.ends_with('/') { path.trim_end_matches('/').to_owned() } else { format!("{path}/") }
}

/// Redirects to the other spelling of the path as the client wrote it, with the prefix that a proxy or `--root-path`
/// adds.
fn redirection(request: &Request) -> Option<Response> {
    let uri = request.extensions().get::<OriginalUri>().map_or(request.uri(), |OriginalUri(uri)| uri);
    let path = respelt(uri.path());
    let host = request.headers().get(header::HOST).map(HeaderValue::to_str).transpose().ok()?;
    let host = host.or(uri.authority().map(Authority::as_str)).filter(|host| !host.is_empty());
    let scheme = if request.extensions().get::<Https>().is_some() { "https" } else { "http" };
    // A client that does not send a host knows it, so a relative address will do.
    let origin = host.map_or_else(String::new, |host| format!("{scheme}://{host}"));
    let query = uri.query().filter(|query| !query.is_empty()).map_or_else(String::new, |query| format!("?{query}"));
    Some(Redirect::temporary(&format!("{origin}{path}{query}")).into_response())
}
