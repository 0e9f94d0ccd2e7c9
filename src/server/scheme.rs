//! Whether a client speaks HTTPS: the addresses that the API answers with say so.

use axum::{
    extract::{ConnectInfo, Request},
    http::HeaderName,
};

use super::{
    listener::Peer,
    next::{Answering, Next},
};
use crate::http::slashes::Https;

/// What a proxy says that ends TLS.
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Marks requests that came by HTTPS. A client that is no proxy may say so too: nobody but itself reads the answer.
pub(super) fn mark(mut request: Request, next: impl Next) -> impl Answering {
    let forwarded = request.headers().get(FORWARDED_PROTO).and_then(|value| value.to_str().ok()).map(str::trim);
    let is_https = match forwarded {
        Some(scheme) if scheme.eq_ignore_ascii_case("https") => true,
        Some(scheme) if scheme.eq_ignore_ascii_case("http") => false,
        _ => request.extensions().get::<ConnectInfo<Peer>>().is_some_and(|peer| peer.0.uses_tls()),
    };
    if is_https {
        request.extensions_mut().insert(Https);
    }
    next(request)
}
