//! Whether an answer is one JSON body or a stream, and what the stream reports.

use crate::{
    turn,
    wire::{
        error::ApiError,
        fields::stream_options::{StreamOptions, no_stream},
    },
};

/// How an answer is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerDelivery {
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

/// Checks the two fields together; with `forced`, every stream ends with its usage, and every chunk has it, as in vLLM.
pub(crate) fn delivery(
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
    let continuous_usage = forced || include_usage && options.continuous_usage_stats.unwrap_or(false);
    Ok(AnswerDelivery::Stream { include_usage, continuous_usage })
}
