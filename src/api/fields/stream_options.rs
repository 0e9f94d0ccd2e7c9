//! Whether an answer is one JSON body or a stream, and what the stream reports.

use serde::Deserialize;
use utoipa::ToSchema;

use super::before::{Checked, is_true};
use crate::{
    api::http::error::ApiError,
    json::Node,
    pydantic::{
        Schema::{self, Nullable, Object},
        Shape::Model,
        optional,
        scalars::NULLABLE_BOOL,
    },
    turn,
};

/// What a stream reports besides choices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
pub(in crate::api) struct StreamOptions {
    /// A last chunk without choices reports usage.
    pub include_usage: Option<bool>,
    /// Every chunk reports usage so far; needs `include_usage`.
    pub continuous_usage_stats: Option<bool>,
}

/// The rules by which vLLM declares these options.
pub(in crate::api) const STREAM_OPTIONS: Schema = Nullable(&Object(
    Model,
    &[optional("include_usage", NULLABLE_BOOL), optional("continuous_usage_stats", NULLABLE_BOOL)],
));

/// Checks the two fields as they were sent.
pub(in crate::api) fn check(body: &Node<'_>) -> Checked {
    if is_true(body, "stream_options") && !is_true(body, "stream") { Err(no_stream()) } else { Ok(()) }
}

fn no_stream() -> ApiError {
    ApiError::refused("stream_options", "Stream options can only be defined when `stream=True`.", None)
}

/// How an answer is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::api) enum AnswerDelivery {
    /// One JSON body.
    Json,
    /// Server-sent events.
    Stream {
        /// Whether a last chunk reports usage.
        include_usage: bool,
        /// Whether every chunk reports usage.
        continuous_usage: bool,
    },
}

impl From<AnswerDelivery> for turn::Delivery {
    fn from(delivery: AnswerDelivery) -> Self {
        match delivery {
            AnswerDelivery::Json => Self::Whole,
            AnswerDelivery::Stream { .. } => Self::Streamed,
        }
    }
}

/// Checks the two fields together; with `forced`, every stream ends with its usage.
pub(in crate::api) fn delivery(
    stream: Option<bool>,
    options: Option<StreamOptions>,
    forced: bool,
) -> Result<AnswerDelivery, ApiError> {
    if stream != Some(true) {
        // vLLM accepts `{}`, but not an option that is set.
        return match options {
            Some(options) if options != StreamOptions::default() => Err(no_stream()),
            _ => Ok(AnswerDelivery::Json),
        };
    }
    let options = options.unwrap_or_default();
    let include_usage = options.include_usage.unwrap_or(false) || forced;
    let continuous_usage = include_usage && options.continuous_usage_stats.unwrap_or(false);
    Ok(AnswerDelivery::Stream { include_usage, continuous_usage })
}
