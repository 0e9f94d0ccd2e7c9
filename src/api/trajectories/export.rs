//! Sequences for trainers, streamed as lines of JSON, of which one is in memory at a time, or as a table in Parquet, of
//! which a group of rows is.

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
    trajectory::{CaptureError, Sequence, SequenceKey, SequenceKeys, Trajectories},
    wire::{
        error::{ApiError, ErrorBody},
        trajectories::{
            export::{Format, error_line, line},
            table::Table,
        },
    },
};

/// Sequences of trajectories, a line of JSON or a row of a table each. One that is not what was sampled is a line or a row
/// with an `error`.
#[utoipa::path(
    get,
    path = "/v1/trajectories/export",
    tag = "trajectories",
    params(query::FilterParams, query::ExportParams),
    responses(
        (status = 200, description = "Lines of JSON, or a table in Parquet, see docs/trajectories.md", content_type = "application/jsonl",
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
    let kind = if format.is_some() { "application/jsonl" } else { "application/vnd.apache.parquet" };
    let table = if format.is_some() { None } else { Some(Table::new().map_err(ApiError::internal)?) };
    let mut export = Export { trajectories, keys, found: VecDeque::new(), format, table, vocab_size };
    let parts = async_stream::stream! {
        loop {
            let next = task::spawn_blocking(move || {
                let part = export.next();
                (export, part)
            });
            match next.await {
                Ok((_, None)) => return,
                Ok((rest, Some(part))) => {
                    export = rest;
                    let is_over = part.is_err();
                    yield part.map(Bytes::from);
                    if is_over {
                        return;
                    }
                }
                Err(error) => {
                    yield Err(CaptureError::Failed(error.to_string()));
                    return;
                }
            }
        }
    };
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(parts)).into_response())
}

/// The parts of an export, one after the other.
struct Export {
    trajectories: Arc<Trajectories>,
    keys: SequenceKeys,
    /// Sequences that were looked up and not made yet.
    found: VecDeque<SequenceKey>,
    /// The shape of lines.
    format: Option<Format>,
    /// The table, where it is one, until it has ended.
    table: Option<Table>,
    vocab_size: usize,
}

impl Iterator for Export {
    type Item = Result<Vec<u8>, CaptureError>;

    /// The line of a sequence, or of the reason why there is none; or some bytes of a table.
    fn next(&mut self) -> Option<Self::Item> {
        if self.found.is_empty() {
            self.found = self.trajectories.next_sequences(&mut self.keys).into();
        }
        let made = self.found.pop_front().map(|key| {
            let made = self.trajectories.sequence(&key, self.vocab_size);
            (key, made)
        });
        let Some(format) = self.format else { return self.rows(made) };
        let (key, made) = made?;
        let written = made.and_then(|made| line(format, made).map_err(|error| CaptureError::Failed(error.to_string())));
        let mut written = written.unwrap_or_else(|error| error_line(&key, &error));
        written.push('\n');
        Some(Ok(written.into_bytes()))
    }
}

impl Export {
    /// What can go out of the table with one more row, or with its end.
    fn rows(
        &mut self,
        made: Option<(SequenceKey, Result<Sequence, CaptureError>)>,
    ) -> Option<Result<Vec<u8>, CaptureError>> {
        let written = match made {
            Some((key, made)) => self.table.as_mut()?.add(key, made),
            None => self.table.take()?.end(),
        };
        Some(written.map_err(|error| CaptureError::Failed(error.to_string())))
    }
}
