//! The ids of answers, which clients may choose.

use axum::http::HeaderMap;

use crate::{fresh_uuid::fresh_uuid, wire::error::ApiError};

/// Bytes of the longest id that a client may choose: it is in every event of a stream, in logs, and in a header.
pub(crate) const MOST_OF_A_CHOSEN_ID: usize = 512;

/// Refuses an id that is too long.
pub(crate) fn check_chosen_id(field: &'static str, id: &str) -> Result<(), ApiError> {
    if id.len() > MOST_OF_A_CHOSEN_ID {
        return Err(ApiError::invalid(field, format!("`{field}` is longer than {MOST_OF_A_CHOSEN_ID} bytes")));
    }
    Ok(())
}

/// An id that a server chooses where the client has not.
pub(crate) fn fresh_id() -> String {
    fresh_uuid().simple().to_string()
}

/// Returns the id of an answer: the client's own, from the header or the body, or a fresh one.
pub(crate) fn answer_id(prefix: &str, headers: &HeaderMap, request_id: Option<&str>) -> Result<String, ApiError> {
    let header = headers.get("x-request-id").and_then(|value| value.to_str().ok()).filter(|id| !id.is_empty());
    for (field, id) in [("X-Request-Id", header), ("request_id", request_id)] {
        id.map_or(Ok(()), |id| check_chosen_id(field, id))?;
    }
    let id = match header.or(request_id).filter(|id| !id.is_empty()) {
        Some(id) => format!("{prefix}-{id}"),
        None => format!("{prefix}-{}", fresh_id()),
    };
    tracing::Span::current().record("id", &id);
    Ok(id)
}
