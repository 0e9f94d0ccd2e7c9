//! The parameters of a path. What is wrong with one is said of it by its name.

use axum::{
    extract::{FromRequestParts, Path as Matched, path::ErrorKind, rejection::PathRejection},
    http::request::Parts,
};
use serde::de::DeserializeOwned;

use crate::{json::Path, wire::error::ApiError};

/// The parameters of a path: one text, or a tuple of them in their order.
pub(crate) struct PathParameters<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParameters<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Matched(read) = Matched::from_request_parts(parts, state).await.map_err(malformed)?;
        Ok(Self(read))
    }
}

fn malformed(error: PathRejection) -> ApiError {
    let message = error.body_text();
    let mut place = Path::from("path");
    if let PathRejection::FailedToDeserializePathParams(failed) = error
        && let ErrorKind::InvalidUtf8InPathParam { key } = failed.into_kind()
    {
        place = place.then(key);
    }
    ApiError::malformed(Some(place), message)
}
