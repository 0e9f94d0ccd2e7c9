//! Request bodies: JSON with vLLM's complaints about it, naming the field.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::header,
};

use super::validate::{self, Body};
use crate::api::http::error::ApiError;
use crate::turn::in_flight;

/// A JSON body; if it is rejected, the answer has the shape of every other error.
#[derive(Debug)]
pub(in crate::api) struct JsonBody<T>(pub T);

impl<T: Body, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        require_json(&request)?;
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| ApiError::malformed(None, format!("cannot read the body: {rejection}")))?;
        if bytes.len() <= in_flight::LARGE {
            return parse(&bytes).map(Self);
        }
        in_flight::blocking(move || parse(&bytes)).await?.map(Self)
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

/// Reads JSON text as a body.
pub(in crate::api) fn parse<T: Body>(bytes: &[u8]) -> Result<T, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ApiError::unreadable())?;
    validate::read(text)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::{api::fields::sampling::SamplingFields, chat::Message};

    #[derive(Debug, Deserialize)]
    struct Fields {
        #[expect(dead_code, reason = "only its shape is tested")]
        messages: Vec<Message>,
        #[serde(flatten)]
        #[expect(dead_code, reason = "only its shape is tested")]
        sampling: SamplingFields,
    }

    impl Body for Fields {
        const RULES: &'static validate::Rules = &validate::ANY;
    }

    fn place(body: &str) -> String {
        let body = parse::<Fields>(body.as_bytes()).unwrap_err().body();
        assert_eq!(body.error.kind, "Bad Request");
        body.error.param.unwrap_or_default()
    }

    #[test]
    fn a_complaint_of_the_reader_names_the_field() {
        assert_eq!(place(r#"{"messages":[{"role":"user"},{"content":"x"}]}"#), "body.messages.1.role");
        assert_eq!(place(r#"{"messages":[{"role":"user","content":5}]}"#), "body.messages.0.content");
        assert_eq!(place(r#"{"messages":[],"stop_token_ids":[1,"x"]}"#), "body.stop_token_ids.1");
        assert_eq!(place("{}"), "body.messages");
        assert_eq!(place("[]"), "body");
    }

    #[test]
    fn what_is_not_json_is_placed_by_characters() {
        assert_eq!(place("{oops"), "body.1");
        assert_eq!(place("{\"é\":tru}"), "body.5");
        assert_eq!(place("{\"messages\":[]} x"), "body.16");
        assert_eq!(parse::<Fields>(&[0xff]).unwrap_err(), ApiError::unreadable());
    }
}
