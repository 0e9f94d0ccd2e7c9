//! Sequences for trainers, streamed as lines of JSON: one is in memory at a time.

use std::sync::Arc;

use axum::{
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use tokio::task;

use super::{Own, not_found, query};
use crate::{
    trajectory::{CaptureError, SequenceKey, Trajectories},
    wire::{
        error::{ApiError, ErrorBody},
        trajectories::export::{Format, error_line, line},
    },
};

/// Sequences of trajectories, a line of JSON each. One that is not what was sampled is a line with an `error`.
#[utoipa::path(
    get,
    path = "/v1/trajectories/export",
    tag = "trajectories",
    params(query::FilterParams, query::ExportParams),
    responses(
        (status = 200, description = "Lines of JSON, see docs/trajectories.md", content_type = "application/jsonl",
         body = String),
        (status = 400, body = ErrorBody),
        (status = 404, description = "Nothing is captured, or `after` is not here", body = ErrorBody),
    )
)]
pub(super) async fn export_trajectories(own: Own, sent: query::Sent) -> Result<Response, ApiError> {
    let query::Asked { filter, format, unit, .. } = query::read(sent, &["format", "unit"])?;
    let (trajectories, after) = (Arc::clone(&own.trajectories), filter.after.clone());
    let vocab_size = own.vocab_size;
    let keys = own.with(move |trajectories, owner| Ok(trajectories.sequences(owner, &filter, unit))).await?;
    let keys = keys.ok_or_else(|| not_found("after", "trajectory", &after.unwrap_or_default()))?;
    let lines = async_stream::stream! {
        for key in keys {
            let trajectories = Arc::clone(&trajectories);
            let written = task::spawn_blocking(move || written(&trajectories, &key, format, vocab_size)).await;
            yield written.map(Bytes::from);
        }
    };
    Ok(([(header::CONTENT_TYPE, "application/jsonl")], Body::from_stream(lines)).into_response())
}

/// The line of a sequence, or of the reason why there is none.
fn written(trajectories: &Trajectories, key: &SequenceKey, format: Format, vocab_size: usize) -> String {
    let made = trajectories.sequence(key, vocab_size);
    let written = made.and_then(|made| line(format, made).map_err(|error| CaptureError::Failed(error.to_string())));
    let mut written = written.unwrap_or_else(|error| error_line(key, &error));
    written.push('\n');
    written
}
