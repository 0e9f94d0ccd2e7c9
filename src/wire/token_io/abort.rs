//! The wire shape of `POST /inference/v1/abort_requests`.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::wire::body::{self, Body, Rules};

/// Which requests to end.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct AbortRequest {
    /// The ids of their answers (`generate-tokens-…`, `chatcmpl-…`, `cmpl-…`); those that do not run, and those of
    /// other API keys, are ignored.
    pub request_ids: Option<Vec<String>>,
}

impl Body for AbortRequest {
    const RULES: &'static Rules = &body::ANY;
}
