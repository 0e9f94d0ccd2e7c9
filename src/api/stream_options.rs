//! Whether an answer is one JSON body or a stream, and what the stream reports.

use super::{chat_completions::StreamOptions, error::ApiError};
use crate::turn;

/// How an answer is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// One JSON body.
    Json,
    /// Server-sent events.
    Stream {
        /// A last chunk reports usage.
        include_usage: bool,
        /// Every chunk does.
        continuous_usage: bool,
    },
}

impl From<Delivery> for turn::Delivery {
    fn from(delivery: Delivery) -> Self {
        match delivery {
            Delivery::Json => Self::Whole,
            Delivery::Stream { .. } => Self::Streamed,
        }
    }
}

/// Checks the two fields together; `forced` has every stream end with its usage.
pub(super) fn delivery(
    stream: Option<bool>,
    options: Option<StreamOptions>,
    forced: bool,
) -> Result<Delivery, ApiError> {
    if stream != Some(true) {
        // vLLM lets `{}` pass, but not an option that is set.
        return match options {
            Some(options) if options != StreamOptions::default() => Err(ApiError::invalid(
                "stream_options",
                "Stream options can only be defined when `stream=True`. (parameter=stream_options)",
            )),
            _ => Ok(Delivery::Json),
        };
    }
    let options = options.unwrap_or_default();
    let include_usage = options.include_usage.unwrap_or(false) || forced;
    let continuous_usage = include_usage && options.continuous_usage_stats.unwrap_or(false);
    Ok(Delivery::Stream { include_usage, continuous_usage })
}
