//! Sequences for trainers, streamed as lines of JSON, of which one is in memory at a time, or as a table in Parquet, of
//! which a group of rows is.

use std::{collections::VecDeque, sync::Arc};

use axum::{
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tokio::task;

use super::{
    OwnTrajectories,
    again::loaded_adapter,
    not_found,
    query::{Content, ExportQuery, StrictQuery},
};
use crate::{
    state::Api,
    trajectory::{CaptureError, Learnt, Sequence, SequenceKey, SequenceKeys, Trajectories},
    wire::{
        error::{ApiError, ErrorBody},
        trajectories::{
            export::{ImagesWritten, WriteLine, error_line, rescored_line},
            table::Table,
        },
    },
};

const JSON_LINES: &str = "application/jsonl";
const PARQUET: &str = "application/vnd.apache.parquet";

/// Sequences of trajectories, a line of JSON or a row of a table each. One that is not what was sampled is a line or a row
/// with an `error`.
#[utoipa::path(
    get,
    path = "/v1/trajectories/export",
    tag = "trajectories",
    params(ExportQuery),
    responses(
        (status = 200, description = "Lines of JSON, or a table in Parquet, see docs/trajectories.md", content_type = "application/jsonl",
         body = String),
        (status = 400, body = ErrorBody),
        (status = 404, description = "Nothing is captured, or `after` is not here", body = ErrorBody),
    )
)]
pub(super) async fn export_trajectories(
    own: OwnTrajectories,
    StrictQuery(query): StrictQuery<ExportQuery>,
) -> Result<Response, ApiError> {
    let (filter, unit, content) = query.resolve(|model| own.names_of(model))?;
    let (trajectories, vocab_size, api) = (Arc::clone(&own.trajectories), own.vocab_size, own.api.clone());
    let after = filter.after.clone();
    let keys = own.with(move |trajectories, owner| Ok(trajectories.sequences(owner, &filter, unit))).await?;
    let keys = keys.ok_or_else(|| not_found("after", "trajectory", &after.unwrap_or_default()))?;
    let wants_sampled = matches!(content, Content::Captured { allow_raw: false, .. });
    let refuses_masks = matches!(content, Content::Captured { allow_unmasked: false, .. });
    let images = match content {
        Content::Captured { format, .. } => format.images(),
        Content::Rescored => ImagesWritten::Named,
    };
    let (found, learnt) = (VecDeque::new(), Learnt::default());
    let sequences = Sequences { trajectories, keys, found, learnt, vocab_size, wants_sampled, refuses_masks, images };
    let (kind, body) = match content {
        Content::Rescored => {
            let api = api.ok_or_else(no_engine)?;
            let served = api.server_load.enter();
            let lines = rescored_lines(sequences, api).inspect(move |_| _ = &served);
            (JSON_LINES, Body::from_stream(lines))
        }
        Content::Captured { format, .. } => {
            if let Some(write) = format.write_line() {
                (JSON_LINES, Body::from_stream(in_turn(Lines { sequences, write })))
            } else {
                let table = Some(Table::new().map_err(ApiError::internal)?);
                (PARQUET, Body::from_stream(in_turn(Rows { sequences, table })))
            }
        }
    };
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

fn no_engine() -> ApiError {
    ApiError::invalid("rescore", "`rescore` needs a model, and nothing is generated here")
}

/// A sequence, or why there is none.
type Made = (SequenceKey, Result<Sequence, CaptureError>);

/// The sequences of an export, one after the other.
struct Sequences {
    trajectories: Arc<Trajectories>,
    keys: SequenceKeys,
    /// Sequences that were looked up and not made yet.
    found: VecDeque<SequenceKey>,
    /// What those learn from that were made.
    learnt: Learnt,
    vocab_size: usize,
    /// Whether log-probs must be those of the distribution that was sampled from.
    wants_sampled: bool,
    /// Whether what is written has no field for masks, and must not lose any.
    refuses_masks: bool,
    /// What is written of images.
    images: ImagesWritten,
}

impl Sequences {
    fn make(&self, key: &SequenceKey) -> Result<Sequence, CaptureError> {
        let mut sequence = self.trajectories.sequence(key, self.vocab_size)?;
        if self.wants_sampled {
            sequence.has_sampled_logprobs()?;
        }
        if self.refuses_masks {
            sequence.has_no_masks()?;
        }
        match self.images {
            ImagesWritten::Nothing => sequence.has_no_images()?,
            ImagesWritten::Named => {}
            ImagesWritten::FilesIfKept => sequence.images = self.trajectories.with_files(&sequence.images)?,
            ImagesWritten::Files => {
                sequence.images = self.trajectories.with_files(&sequence.images)?;
                sequence.has_all_files()?;
            }
        }
        Ok(sequence)
    }
}

impl Iterator for Sequences {
    type Item = Made;

    fn next(&mut self) -> Option<Made> {
        if self.found.is_empty() {
            self.found = self.trajectories.next_sequences(&mut self.keys).into();
        }
        let key = self.found.pop_front()?;
        let mut made = self.make(&key);
        if let Ok(sequence) = &mut made {
            self.learnt.count(&key, sequence);
        }
        Some((key, made))
    }
}

/// Sequences as lines: the line of each, or of the reason why there is none.
struct Lines {
    sequences: Sequences,
    write: WriteLine,
}

impl Iterator for Lines {
    type Item = Result<Vec<u8>, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (key, made) = self.sequences.next()?;
        Some(Ok(line_of(&key, made.and_then(|sequence| (self.write)(sequence).map_err(|error| not_written(&error))))))
    }
}

/// Sequences as rows of a table: what can go out of it after one row more, or after its end.
struct Rows {
    sequences: Sequences,
    /// The table, until it has ended.
    table: Option<Table>,
}

impl Iterator for Rows {
    type Item = Result<Vec<u8>, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        let written = match self.sequences.next() {
            Some((key, made)) => self.table.as_mut()?.add(key, made),
            None => self.table.take()?.end(),
        };
        Some(written.map_err(|error| not_written(&error)))
    }
}

/// Lines with how far the log-probs of each sequence are from those of the present weights.
fn rescored_lines(sequences: Sequences, api: Arc<Api>) -> impl Stream<Item = Result<Vec<u8>, CaptureError>> {
    in_turn(sequences.map(Ok)).and_then(move |(key, made)| {
        let api = Arc::clone(&api);
        async move { Ok(rescored_line_of(&api, key, made).await) }
    })
}

/// Streams the items of an iterator, each of which is made on a thread that may wait. An error is the last of them.
fn in_turn<I, T>(items: I) -> impl Stream<Item = Result<T, CaptureError>>
where
    I: Iterator<Item = Result<T, CaptureError>> + Send + 'static,
    T: Send + 'static,
{
    stream::try_unfold(items, |mut items| async {
        let next = task::spawn_blocking(move || items.next().map(|item| (item, items)));
        let next = next.await.map_err(|error| CaptureError::Failed(error.to_string()))?;
        next.map(|(item, items)| Ok((item?, items))).transpose()
    })
}

/// The line of a sequence with what came of scoring it again.
async fn rescored_line_of(api: &Api, key: SequenceKey, made: Result<Sequence, CaptureError>) -> Vec<u8> {
    let sequence = match made {
        Ok(sequence) => sequence,
        Err(error) => return line_of(&key, Err(error)),
    };
    let rescored = match loaded_adapter(api, &sequence).await {
        Ok(adapter) => api.turns.rescore(&sequence, adapter).await,
        Err(reason) => Err(reason),
    };
    line_of(&key, rescored_line(sequence, rescored).map_err(|error| not_written(&error)))
}

fn not_written(error: &impl ToString) -> CaptureError {
    CaptureError::Failed(error.to_string())
}

/// The bytes of a line, or of one with the reason why there is none.
fn line_of(key: &SequenceKey, written: Result<String, CaptureError>) -> Vec<u8> {
    let mut line = written.unwrap_or_else(|error| error_line(key, &error));
    line.push('\n');
    line.into_bytes()
}
