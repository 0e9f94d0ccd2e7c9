//! Whether an answer is one JSON body or a stream, and what the stream reports.

use serde::Deserialize;
use utoipa::ToSchema;

use super::untyped::{Checked, is_true};
use crate::{
    json::Node,
    pydantic::{
        Schema::{self, Nullable, Object},
        Shape::Model,
        optional,
        scalars::NULLABLE_BOOL,
    },
    wire::error::ApiError,
};

/// What a stream reports besides choices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
pub(crate) struct StreamOptions {
    /// A last chunk without choices reports usage.
    pub include_usage: Option<bool>,
    /// Every chunk reports usage so far; needs `include_usage`.
    pub continuous_usage_stats: Option<bool>,
}

/// The rules by which vLLM declares these options.
pub(crate) const STREAM_OPTIONS: Schema = Nullable(&Object(
    Model,
    &[optional("include_usage", NULLABLE_BOOL), optional("continuous_usage_stats", NULLABLE_BOOL)],
));

/// Checks the two fields as they were sent.
pub(crate) fn check(body: &Node<'_>) -> Checked {
    if is_true(body, "stream_options") && !is_true(body, "stream") { Err(no_stream()) } else { Ok(()) }
}

/// Makes the refusal of options without a stream.
pub(crate) fn no_stream() -> ApiError {
    ApiError::refused("stream_options", "Stream options can only be defined when `stream=True`.", None)
}
