//! Sequences for trainers, streamed as lines of JSON: one is in memory at a time.

use std::{collections::VecDeque, sync::Arc};

use axum::{
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use tokio::task;

use super::{Own, not_found, query};
use crate::{
    trajectory::{CaptureError, SequenceKey, SequenceKeys, Trajectories},
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
    let query::Asked { filter, format, unit, .. } = query::read::<query::ExportParams>(sent)?;
    let (trajectories, after) = (Arc::clone(&own.trajectories), filter.after.clone());
    let vocab_size = own.vocab_size;
    let keys = own.with(move |trajectories, owner| Ok(trajectories.sequences(owner, &filter, unit))).await?;
    let keys = keys.ok_or_else(|| not_found("after", "trajectory", &after.unwrap_or_default()))?;
    let mut lines = Lines { trajectories, keys, found: VecDeque::new(), format, vocab_size };
    let lines = async_stream::stream! {
        loop {
            let next = task::spawn_blocking(move || {
                let line = lines.next();
                (lines, line)
            });
            match next.await {
                Ok((_, None)) => return,
                Ok((rest, Some(line))) => {
                    lines = rest;
                    yield Ok(Bytes::from(line));
                }
                Err(error) => {
                    yield Err(error);
                    return;
                }
            }
        }
    };
    Ok(([(header::CONTENT_TYPE, "application/jsonl")], Body::from_stream(lines)).into_response())
}

/// The lines of an export, one after the other.
struct Lines {
    trajectories: Arc<Trajectories>,
    keys: SequenceKeys,
    /// Sequences that were looked up and not made yet.
    found: VecDeque<SequenceKey>,
    format: Format,
    vocab_size: usize,
}

impl Iterator for Lines {
    type Item = String;

    /// The line of a sequence, or of the reason why there is none.
    fn next(&mut self) -> Option<String> {
        if self.found.is_empty() {
            self.found = self.trajectories.next_sequences(&mut self.keys).into();
        }
        let key = self.found.pop_front()?;
        let made = self.trajectories.sequence(&key, self.vocab_size);
        let written =
            made.and_then(|made| line(self.format, made).map_err(|error| CaptureError::Failed(error.to_string())));
        let mut written = written.unwrap_or_else(|error| error_line(&key, &error));
        written.push('\n');
        Some(written)
    }
}
