//! Request bodies: JSON with vLLM's complaints about it, naming the field.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::header,
};
use serde::de::DeserializeOwned;

use crate::{
    turn::in_flight,
    wire::{
        body::{self, Body},
        error::{ApiError, ErrorKind},
    },
};

/// In the extensions of a request: what clients say is captured, so bodies have it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CapturesTexts;

/// A JSON body; if it is rejected, the answer has the shape of every other error.
#[derive(Debug)]
pub(crate) struct JsonBody<T>(pub T);

impl<T: Body, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let captures_texts = request.extensions().get::<CapturesTexts>().is_some();
        received(request, state, move |bytes| body::parse_with(bytes, captures_texts)).await.map(Self)
    }
}

/// A JSON body, and fields of it that only the reader of this kind of request looks at.
#[derive(Debug)]
pub(crate) struct JsonBodyAndFields<T, Fields>(pub T, pub Fields);

impl<T, Fields, S> FromRequest<S> for JsonBodyAndFields<T, Fields>
where
    T: Body,
    Fields: DeserializeOwned + Send + 'static,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        received(request, state, body::parse_with_fields).await.map(|(body, fields)| Self(body, fields))
    }
}

/// Receives a body of JSON and reads it: a large one on a thread of its own.
async fn received<T: Send + 'static, S: Send + Sync>(
    request: Request,
    state: &S,
    read: impl FnOnce(&[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    require_json(&request)?;
    let encoding = encoding(&request);
    let read = move |bytes: &[u8]| read(bytes).map_err(|error| said(error, encoding.as_deref()));
    let bytes = Bytes::from_request(request, state)
        .await
        .map_err(|rejection| ApiError::malformed(None, format!("cannot read the body: {rejection}")))?;
    if bytes.len() <= in_flight::LARGE {
        return read(&bytes);
    }
    in_flight::blocking(move || read(&bytes)).await?
}

/// The encoding of a body that is not sent as it is.
fn encoding(request: &Request) -> Option<String> {
    let encoding = request.headers().get(header::CONTENT_ENCODING)?.to_str().ok()?;
    (!encoding.eq_ignore_ascii_case("identity")).then(|| encoding.to_owned())
}

/// The error of a body, which names its encoding where nobody can read it: nobody decodes it.
fn said(error: ApiError, encoding: Option<&str>) -> ApiError {
    match encoding {
        Some(encoding) if error.kind() == ErrorKind::Unreadable => ApiError::encoded(encoding),
        _ => error,
    }
}

/// Requires the media type `application/json`, whose parameters do not count (vLLM answers another one with 400, not
/// 415).
fn require_json(request: &Request) -> Result<(), ApiError> {
    let value = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    // The comparison is vLLM's: a blank before the semicolon makes another type of it.
    let media_type = value.split(';').next().unwrap_or("");
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed";
    Err(ApiError::malformed(None, message))
}
