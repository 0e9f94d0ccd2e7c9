//! Sequences as a table in Parquet: a row each, ids, mask and log-probs as lists. Rows are written in groups, so that a
//! group and not the table has to fit into memory; only this file names the crate `parquet`.

use std::sync::Arc;

use bytes::Bytes;
use parquet::{
    basic::Compression,
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::parser::parse_message_type,
};

use crate::trajectory::{CaptureError, Generation, ImageUsed, PackedMasks, Sequence, SequenceKey};

/// The columns, in the order in which they are written. Those of a row with an `error` are null but its ids.
const COLUMNS: &str = "message sequence {
    required binary trajectory_id (STRING);
    required binary turn_id (STRING);
    optional binary error (STRING);
    optional group token_ids (LIST) { repeated group list { required int32 element; } }
    optional group loss_mask (LIST) { repeated group list { required int32 element (INTEGER(8, true)); } }
    optional group logprobs (LIST) { repeated group list { optional float element; } }
    optional binary logprobs_mode (STRING);
    optional int64 prompt_tokens;
    optional double sequence_reward;
    optional double reward;
    optional group tags (LIST) { repeated group list { required binary element (STRING); } }
    optional binary session (STRING);
    optional binary model (STRING);
    optional binary adapter (STRING);
    optional group turn_ids (LIST) { repeated group list { required binary element (STRING); } }
    optional group turn_starts (LIST) { repeated group list { required int64 element; } }
    optional group turn_ends (LIST) { repeated group list { required int64 element; } }
    optional group turn_repeated (LIST) { repeated group list { required boolean element; } }
    optional group turn_rewards (LIST) { repeated group list { optional double element; } }
    optional group turn_created_at (LIST) { repeated group list { required double element; } }
    optional group turn_ended_at (LIST) { repeated group list { required double element; } }
    optional group sampling_mask_counts (LIST) { repeated group list { required int32 element; } }
    optional group sampling_mask_ids (LIST) { repeated group list { required int32 element; } }
    optional group images (LIST) { repeated group list { required group element {
        required binary identity (STRING);
        required int64 offset;
        required int64 length;
        required group grid_thw (LIST) { repeated group list { required int32 element; } }
        required boolean file_kept;
        optional binary bytes;
    } } }
}";

/// How many ids, rows and bytes of images are waited for before a group is written.
const IDS_OF_GROUP: usize = 1 << 20;
const ROWS_OF_GROUP: usize = 1 << 12;
const IMAGE_BYTES_OF_GROUP: usize = 1 << 25;

/// Values of a column with the levels that say of which row and list they are.
struct Column<T: DataType> {
    values: Vec<T::T>,
    defined: Vec<i16>,
    repeated: Vec<i16>,
}

impl<T: DataType> Column<T> {
    fn new() -> Self {
        Self { values: Vec::new(), defined: Vec::new(), repeated: Vec::new() }
    }

    fn add(&mut self, value: Option<T::T>, most: i16, repeated: i16) {
        self.defined.push(if value.is_some() { most } else { most - 1 });
        self.repeated.push(repeated);
        self.values.extend(value);
    }

    /// Adds a row whose list may be missing. `most` is the level of a value: one more where values may be null.
    fn list(&mut self, list: Option<impl Iterator<Item = Option<T::T>>>, most: i16) {
        let Some(list) = list else {
            self.defined.push(0);
            return self.repeated.push(0);
        };
        let before = self.defined.len();
        for value in list {
            self.add(value, most, i16::from(self.defined.len() > before));
        }
        if self.defined.len() == before {
            self.defined.push(1);
            self.repeated.push(0);
        }
    }

    /// Adds a row whose list may be missing, and whose items are lists that are never empty.
    fn lists(&mut self, lists: Option<impl Iterator<Item = [T::T; 3]>>) {
        let before = self.defined.len();
        let is_there = lists.is_some();
        for list in lists.into_iter().flatten() {
            for (place, value) in list.into_iter().enumerate() {
                let of_row = i16::from(self.defined.len() > before);
                self.add(Some(value), 3, if place > 0 { 2 } else { of_row });
            }
        }
        if self.defined.len() == before {
            self.defined.push(i16::from(is_there));
            self.repeated.push(0);
        }
    }

    fn write(self, group: &mut SerializedRowGroupWriter<'_, Vec<u8>>) -> Result<(), ParquetError> {
        let missing = || ParquetError::General("a column is missing".to_owned());
        let mut column = group.next_column()?.ok_or_else(missing)?;
        column.typed::<T>().write_batch(&self.values, Some(&self.defined), Some(&self.repeated))?;
        column.close()
    }
}

/// A sequence, or why there is none.
type Row = (SequenceKey, Result<Sequence, CaptureError>);

/// A table that is being written.
pub(crate) struct Table {
    writer: SerializedFileWriter<Vec<u8>>,
    rows: Vec<Row>,
    ids: usize,
    image_bytes: usize,
}

impl Table {
    pub(crate) fn new() -> Result<Self, ParquetError> {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let schema = Arc::new(parse_message_type(COLUMNS)?);
        let writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
        Ok(Self { writer, rows: Vec::new(), ids: 0, image_bytes: 0 })
    }

    /// Adds a row, and returns the bytes that can go out.
    pub(crate) fn add(
        &mut self,
        key: SequenceKey,
        made: Result<Sequence, CaptureError>,
    ) -> Result<Vec<u8>, ParquetError> {
        let made = made.and_then(in_32_bits);
        self.ids += made.as_ref().map_or(0, |sequence| sequence.token_ids.len() + sequence.masks.ids.len());
        self.image_bytes += made.as_ref().map_or(0, |sequence| files(sequence).map(<[u8]>::len).sum());
        self.rows.push((key, made));
        let is_full = self.ids >= IDS_OF_GROUP || self.image_bytes >= IMAGE_BYTES_OF_GROUP;
        if is_full || self.rows.len() >= ROWS_OF_GROUP {
            self.write()?;
        }
        self.written()
    }

    /// Ends the table, and returns the rest of its bytes.
    pub(crate) fn end(mut self) -> Result<Vec<u8>, ParquetError> {
        self.write()?;
        self.writer.finish()?;
        self.written()
    }

    fn written(&mut self) -> Result<Vec<u8>, ParquetError> {
        self.writer.flush().map_err(|error| ParquetError::External(error.into()))?;
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    /// Writes the rows that wait as a group.
    fn write(&mut self) -> Result<(), ParquetError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows);
        (self.ids, self.image_bytes) = (0, 0);
        let mut group = self.writer.next_row_group()?;
        identities(&rows, &mut group)?;
        ids(&rows, &mut group)?;
        facts(&rows, &mut group)?;
        turns(&rows, &mut group)?;
        masks(&rows, &mut group)?;
        images(&rows, &mut group)?;
        group.close()?;
        Ok(())
    }
}

/// The files of a sequence's images, as far as they were kept.
fn files(sequence: &Sequence) -> impl Iterator<Item = &[u8]> {
    sequence.images.iter().filter_map(|image| image.file.as_deref())
}

/// A table has no ids without a sign, and no larger sides of images.
fn in_32_bits(sequence: Sequence) -> Result<Sequence, CaptureError> {
    let too_large = |what| Err(CaptureError::Failed(format!("{what} is too large for a table")));
    if let Some(id) = sequence.token_ids.iter().chain(&sequence.masks.ids).find(|id| i32::try_from(**id).is_err()) {
        return too_large(format!("id {id}"));
    }
    match sequence.images.iter().find(|image| side(image.rows).and(side(image.columns)).is_none()) {
        Some(image) => too_large(format!("the grid of the image {}", image.identity)),
        None => Ok(sequence),
    }
}

/// A side of an image, in patches.
fn side(patches: usize) -> Option<i32> {
    i32::try_from(patches).ok()
}

fn text(text: &str) -> ByteArray {
    ByteArray::from(text)
}

fn number(number: usize) -> i64 {
    i64::try_from(number).expect("the length of a list in memory")
}

type Group<'w> = SerializedRowGroupWriter<'w, Vec<u8>>;

/// A column of one value, or none, for each row.
fn single<T: DataType>(
    rows: &[Row],
    most: i16,
    group: &mut Group<'_>,
    value: impl Fn(&Row) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let mut column = Column::<T>::new();
    for row in rows {
        column.add(value(row), most, 0);
    }
    column.write(group)
}

/// A column of lists.
fn lists<'r, T: DataType, I: Iterator<Item = Option<T::T>>>(
    rows: &'r [Row],
    most: i16,
    group: &mut Group<'_>,
    list: impl Fn(&'r Sequence) -> I,
) -> Result<(), ParquetError> {
    let mut column = Column::<T>::new();
    for (_, made) in rows {
        column.list(made.as_ref().ok().map(&list), most);
    }
    column.write(group)
}

fn identities(rows: &[Row], group: &mut Group<'_>) -> Result<(), ParquetError> {
    single::<ByteArrayType>(rows, 0, group, |(key, _)| Some(text(&key.trajectory)))?;
    single::<ByteArrayType>(rows, 0, group, |(key, _)| Some(text(&key.turn)))?;
    single::<ByteArrayType>(rows, 1, group, |(_, made)| Some(text(&made.as_ref().err()?.to_string())))
}

fn ids(rows: &[Row], group: &mut Group<'_>) -> Result<(), ParquetError> {
    lists::<Int32Type, _>(rows, 2, group, |sequence| sequence.token_ids.iter().map(|id| i32::try_from(*id).ok()))?;
    lists::<Int32Type, _>(rows, 2, group, |sequence| sequence.loss_mask.iter().map(|learnt| Some(i32::from(*learnt))))?;
    lists::<FloatType, _>(rows, 3, group, |sequence| sequence.logprobs.iter().copied())?;
    single::<ByteArrayType>(rows, 1, group, |(_, made)| Some(text(made.as_ref().ok()?.logprobs_mode()?)))
}

fn last((_, made): &Row) -> Option<&Generation> {
    Some(&made.as_ref().ok()?.turns.last()?.generation)
}

fn facts(rows: &[Row], group: &mut Group<'_>) -> Result<(), ParquetError> {
    single::<Int64Type>(rows, 1, group, |(_, made)| Some(number(made.as_ref().ok()?.prompt_tokens)))?;
    single::<DoubleType>(rows, 1, group, |(_, made)| made.as_ref().ok()?.reward)?;
    single::<DoubleType>(rows, 1, group, |(_, made)| made.as_ref().ok()?.notes.reward)?;
    lists::<ByteArrayType, _>(rows, 2, group, |sequence| sequence.notes.tags.iter().map(|tag| Some(text(tag))))?;
    single::<ByteArrayType>(rows, 1, group, |row| Some(text(last(row)?.session.as_ref()?)))?;
    single::<ByteArrayType>(rows, 1, group, |row| Some(text(&last(row)?.model)))?;
    single::<ByteArrayType>(rows, 1, group, |row| Some(text(&last(row)?.adapter.as_ref()?.label)))
}

fn turns(rows: &[Row], group: &mut Group<'_>) -> Result<(), ParquetError> {
    lists::<ByteArrayType, _>(rows, 2, group, |sequence| sequence.turns.iter().map(|turn| Some(text(&turn.place.id))))?;
    lists::<Int64Type, _>(rows, 2, group, |sequence| sequence.turns.iter().map(|turn| Some(number(turn.start))))?;
    lists::<Int64Type, _>(rows, 2, group, |sequence| sequence.turns.iter().map(|turn| Some(number(turn.end))))?;
    lists::<BoolType, _>(rows, 2, group, |sequence| sequence.turns.iter().map(|turn| Some(turn.repeated)))?;
    lists::<DoubleType, _>(rows, 3, group, |sequence| {
        sequence.turns.iter().map(|turn| sequence.notes.turn_rewards.get(&turn.place.id).copied())
    })?;
    lists::<DoubleType, _>(rows, 2, group, |sequence| sequence.turns.iter().map(|turn| Some(turn.generation.created)))?;
    lists::<DoubleType, _>(rows, 2, group, |sequence| sequence.turns.iter().map(|turn| Some(turn.generation.ended)))
}

/// The counts and the ids of sampling masks; null for a row of which no id has one.
fn masks(rows: &[Row], group: &mut Group<'_>) -> Result<(), ParquetError> {
    let packed = |of: fn(&PackedMasks) -> &[u32], group: &mut Group<'_>| {
        let mut column = Column::<Int32Type>::new();
        for (_, made) in rows {
            let masks = made.as_ref().ok().map(|sequence| &sequence.masks).filter(|masks| !masks.is_empty());
            column.list(masks.map(|masks| of(masks).iter().map(|number| i32::try_from(*number).ok())), 2);
        }
        column.write(group)
    };
    packed(|masks| &masks.counts, group)?;
    packed(|masks| &masks.ids, group)
}

/// The images of prompts. `bytes` is what `datasets` and verl call the file of an image, too.
fn images(rows: &[Row], group: &mut Group<'_>) -> Result<(), ParquetError> {
    lists::<ByteArrayType, _>(rows, 2, group, |row| row.images.iter().map(|image| Some(text(&image.identity))))?;
    lists::<Int64Type, _>(rows, 2, group, |row| row.images.iter().map(|image| Some(number(image.offset))))?;
    lists::<Int64Type, _>(rows, 2, group, |row| row.images.iter().map(|image| Some(number(image.length))))?;
    let mut grids = Column::<Int32Type>::new();
    for (_, made) in rows {
        let known = |patches| side(patches).expect("larger ones were refused");
        let sides = |image: &ImageUsed| [1, known(image.rows), known(image.columns)];
        grids.lists(made.as_ref().ok().map(|sequence| sequence.images.iter().map(sides)));
    }
    grids.write(group)?;
    lists::<BoolType, _>(rows, 2, group, |row| row.images.iter().map(|image| Some(image.file_bytes.is_some())))?;
    let bytes = |image: &ImageUsed| image.file.clone().map(|file| ByteArray::from(Bytes::from_owner(file)));
    lists::<ByteArrayType, _>(rows, 3, group, |row| row.images.iter().map(bytes))
}
