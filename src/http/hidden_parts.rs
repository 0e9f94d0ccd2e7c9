//! The header that names what of a conversation its chat template does not show.

use axum::{
    http::{HeaderName, HeaderValue},
    response::Response,
};

use crate::prompt::HiddenPart;

const HEADER: HeaderName = HeaderName::from_static("x-hidden-by-template");

/// Adds the header to the response, if anything is hidden.
pub(crate) fn announce_hidden(hidden: &[HiddenPart], mut response: Response) -> Response {
    let names: Vec<_> = hidden.iter().map(|part| part.name()).collect();
    if let Ok(value) = HeaderValue::from_str(&names.join(", "))
        && !names.is_empty()
    {
        response.headers_mut().insert(HEADER, value);
    }
    response
}
