//! The parts of a request besides its body: its headers, and the API key that opened it.

use std::convert::Infallible;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};

use crate::turn::{Client, Identity};

/// The client that asks, and the headers of its request.
#[derive(Clone, Default)]
pub(crate) struct Caller {
    pub(crate) headers: HeaderMap,
    pub(crate) client: Client,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let identity: Option<Identity> = parts.extensions.get().copied();
        Ok(Self { headers: parts.headers.clone(), client: Client::new(identity) })
    }
}
