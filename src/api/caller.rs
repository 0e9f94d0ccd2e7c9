//! What a request says besides its body: its headers, and the API key that opened it.

use std::convert::Infallible;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};

use super::responses::ResponseKey;
use crate::turn::{Client, Identity};

/// Who asks, and the headers.
#[derive(Clone, Default)]
pub(super) struct Caller {
    pub(super) headers: HeaderMap,
    pub(super) client: Client,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let identity: Option<Identity> = parts.extensions.get().copied();
        Ok(Self { headers: parts.headers.clone(), client: Client::new(identity) })
    }
}

impl Caller {
    /// The response that this client knows by `id`.
    pub(super) fn response(&self, id: impl Into<String>) -> ResponseKey {
        ResponseKey::new(self.client.owner(), id.into())
    }
}
