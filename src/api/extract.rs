//! Request bodies: JSON with vLLM's complaints about it, naming the field.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::header,
};
use serde::de::DeserializeOwned;

use super::{error::ApiError, sampling::SamplingFields};

/// A JSON body; rejected in the shape of every other error.
#[derive(Debug)]
pub(super) struct JsonBody<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        require_json(&request)?;
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| ApiError::malformed(None, format!("cannot read the body: {rejection}")))?;
        parse(&bytes).map(Self)
    }
}

/// The media type must be `application/json`, parameters aside (vLLM: 400, not 415).
fn require_json(request: &Request) -> Result<(), ApiError> {
    let value = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let media_type = value.split(';').next().unwrap_or("").trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed";
    Err(ApiError::malformed(None, message))
}

/// Reads JSON text as a body.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| complain(error, bytes))?;
    deserializer.end().map_err(|error| invalid_json(&error))?;
    Ok(value)
}

fn invalid_json(error: &serde_json::Error) -> ApiError {
    let place = format!("body.{}", error.column());
    ApiError::malformed(Some(place), format!("1 validation error:\n  JSON decode error: {error}"))
}

type Complaint = serde_path_to_error::Error<serde_json::Error>;

/// serde's `flatten` forgets which field it complains about; the fields that are flattened know when read alone.
fn with_place(error: Complaint, bytes: &[u8]) -> Complaint {
    if error.path().iter().next().is_some() {
        return error;
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    match serde_path_to_error::deserialize::<_, SamplingFields>(&mut deserializer) {
        Err(placed) if placed.path().iter().next().is_some() => placed,
        _ => error,
    }
}

fn complain(error: Complaint, bytes: &[u8]) -> ApiError {
    if !error.inner().is_data() {
        return invalid_json(error.inner());
    }
    let error = with_place(error, bytes);
    let cause = error.inner();
    let mut place = "body".to_owned();
    for segment in error.path() {
        if !matches!(segment, serde_path_to_error::Segment::Unknown) {
            place = format!("{place}.{}", segment.to_string().trim_matches(['[', ']']));
        }
    }
    let reason = cause.to_string();
    // "missing field `x`" is reported at its parent; pydantic names the field itself.
    if let Some(field) = reason.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
        place = format!("{place}.{field}");
        return ApiError::malformed(Some(place.clone()), format!("1 validation error:\n  {place}: Field required"));
    }
    let reason = reason.split(" at line ").next().unwrap_or_default();
    ApiError::malformed(Some(place.clone()), format!("1 validation error:\n  {place}: {reason}"))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::chat::Message;

    #[derive(Debug, Deserialize)]
    struct Body {
        #[expect(dead_code, reason = "only its shape is tested")]
        messages: Vec<Message>,
        #[serde(flatten)]
        #[expect(dead_code, reason = "only its shape is tested")]
        sampling: SamplingFields,
    }

    fn place(body: &str) -> String {
        let body = parse::<Body>(body.as_bytes()).unwrap_err().body();
        assert_eq!(body.error.kind, "Bad Request");
        body.error.param.unwrap_or_default()
    }

    #[test]
    fn a_complaint_names_the_field() {
        assert_eq!(place(r#"{"messages":[{"role":"user"},{"content":"x"}]}"#), "body.messages.1.role");
        assert_eq!(place(r#"{"messages":[{"role":"user","content":5}]}"#), "body.messages.0.content");
        assert_eq!(
            place(r#"{"messages":[{"role":"assistant","tool_calls":[{"id":1}]}]}"#),
            "body.messages.0.tool_calls.0"
        );
        assert_eq!(place(r#"{"messages":[],"temperature":"hot"}"#), "body.temperature");
        assert_eq!(place(r#"{"messages":[],"stop_token_ids":[1,"x"]}"#), "body.stop_token_ids.1");
        assert_eq!(place("{}"), "body.messages");
        assert_eq!(place("[]"), "body");
        assert_eq!(place("{oops"), "body.2");
    }

    #[test]
    fn what_follows_the_body_is_not_ignored() {
        assert!(parse::<Body>(br#"{"messages":[]} x"#).is_err());
    }
}
