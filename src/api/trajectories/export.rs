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
    api::Api,
    trajectory::{CaptureError, Sequence, SequenceKey, SequenceKeys, Trajectories},
    wire::{
        error::{ApiError, ErrorBody},
        trajectories::{
            export::{Format, error_line, line, rescored_line},
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
    let query::Asked { filter, format, unit, rescore, allow_raw, .. } = query::read::<query::ExportParams>(sent)?;
    let api = if rescore { Some(own.api.clone().ok_or_else(no_engine)?) } else { None };
    let (trajectories, after) = (Arc::clone(&own.trajectories), filter.after.clone());
    let vocab_size = own.vocab_size;
    let keys = own.with(move |trajectories, owner| Ok(trajectories.sequences(owner, &filter, unit))).await?;
    let keys = keys.ok_or_else(|| not_found("after", "trajectory", &after.unwrap_or_default()))?;
    let kind = if format.is_some() { "application/jsonl" } else { "application/vnd.apache.parquet" };
    let table = if format.is_some() { None } else { Some(Table::new().map_err(ApiError::internal)?) };
    // tito's own lines say which distribution their log-probs describe; trainers do not ask.
    let wants_sampled = !allow_raw && format != Some(Format::Jsonl);
    let mut export = Export { trajectories, keys, found: VecDeque::new(), format, table, vocab_size, wants_sampled };
    let parts = async_stream::stream! {
        loop {
            let is_made_only = api.is_some();
            let next = task::spawn_blocking(move || {
                let part = if is_made_only { export.made().map(|made| Part::Made(Box::new(made))) } else { export.next().map(Part::Written) };
                (export, part)
            });
            let (rest, part) = match next.await {
                Ok((_, None)) => return,
                Ok((rest, Some(part))) => (rest, part),
                Err(error) => {
                    yield Err(CaptureError::Failed(error.to_string()));
                    return;
                }
            };
            export = rest;
            let part = match (part, &api) {
                (Part::Written(part), _) => part,
                (Part::Made(made), Some(api)) => Ok(rescored(api, *made).await),
                (Part::Made(_), None) => unreachable!("it is made only to be rescored"),
            };
            let is_over = part.is_err();
            yield part.map(Bytes::from);
            if is_over {
                return;
            }
        }
    };
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(parts)).into_response())
}

fn no_engine() -> ApiError {
    ApiError::invalid("rescore", "`rescore` needs a model, and nothing is generated here")
}

/// A part of an export.
enum Part {
    /// Bytes that can go out.
    Written(Result<Vec<u8>, CaptureError>),
    /// A sequence that is to be scored again.
    Made(Box<Made>),
}

/// A sequence, or why there is none.
type Made = (SequenceKey, Result<Sequence, CaptureError>);

/// The line of a sequence with how far its log-probs are from those of the present weights.
async fn rescored(api: &Api, (key, made): Made) -> Vec<u8> {
    let sequence = match made {
        Ok(sequence) => sequence,
        Err(error) => return ended(error_line(&key, &error)),
    };
    let used = sequence.turns.last().and_then(|turn| turn.generation.adapter.as_ref());
    let rescored = match used.map(|used| (used, api.models.find(Some(&used.name)).ok().flatten())) {
        None => api.turns.rescore(&sequence, None).await,
        Some((_, Some(adapter))) => api.turns.rescore(&sequence, Some(adapter)).await,
        Some((used, None)) => Err(format!("the adapter {} is not loaded", used.name)),
    };
    let line = rescored_line(sequence, rescored).map_err(|error| CaptureError::Failed(error.to_string()));
    ended(line.unwrap_or_else(|error| error_line(&key, &error)))
}

fn ended(mut line: String) -> Vec<u8> {
    line.push('\n');
    line.into_bytes()
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
    /// Whether log-probs must be those of the distribution that was sampled from.
    wants_sampled: bool,
}

impl Iterator for Export {
    type Item = Result<Vec<u8>, CaptureError>;

    /// The line of a sequence, or of the reason why there is none; or some bytes of a table.
    fn next(&mut self) -> Option<Self::Item> {
        let made = self.made();
        let Some(format) = self.format else { return self.rows(made) };
        let (key, made) = made?;
        let written = made.and_then(|made| line(format, made).map_err(|error| CaptureError::Failed(error.to_string())));
        Some(Ok(ended(written.unwrap_or_else(|error| error_line(&key, &error)))))
    }
}

impl Export {
    /// The next sequence, or why there is none.
    fn made(&mut self) -> Option<Made> {
        if self.found.is_empty() {
            self.found = self.trajectories.next_sequences(&mut self.keys).into();
        }
        self.found.pop_front().map(|key| {
            let made = self.trajectories.sequence(&key, self.vocab_size);
            let made = made.and_then(|sequence| {
                if self.wants_sampled {
                    sequence.has_sampled_logprobs()?;
                }
                Ok(sequence)
            });
            (key, made)
        })
    }

    /// What can go out of the table with one more row, or with its end.
    fn rows(&mut self, made: Option<Made>) -> Option<Result<Vec<u8>, CaptureError>> {
        let written = match made {
            Some((key, made)) => self.table.as_mut()?.add(key, made),
            None => self.table.take()?.end(),
        };
        Some(written.map_err(|error| CaptureError::Failed(error.to_string())))
    }
}
