//! Numbers of a GGUF file, under the names and in the order of a Hugging Face directory.
//!
//! Read by position, so that several threads can; no more is in memory than the rows that were asked for.

use std::{borrow::Cow, collections::BTreeMap, fs::File, ops::Range, os::unix::fs::FileExt, path::PathBuf};

use candle_core::{CpuStorage, quantized::GgmlDType};

use super::{GgufError, GgufFile, hugging_face::NamedTensor};
use crate::files;

/// The tensors of a file.
#[derive(Debug)]
pub(crate) struct GgufTensors {
    path: PathBuf,
    file: File,
    tensors: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    named: NamedTensor,
    dtype: GgmlDType,
    /// Where its first byte is in the file.
    offset: u64,
}

impl GgufTensors {
    /// Checks the file against the table of names, and opens it.
    pub(crate) fn open(file: &GgufFile) -> Result<Self, GgufError> {
        let path = file.path().to_owned();
        let opened = File::open(&path).map_err(|source| GgufError::Open { path: path.clone(), source })?;
        let entry = |named: NamedTensor| {
            let info = &file.content.tensor_infos[&named.source];
            let expert = named.expert.map_or(0, |(expert, _)| expert);
            let before = expert * named.shape.iter().product::<usize>();
            let offset = file.content.tensor_data_offset + info.offset + bytes_of(info.ggml_dtype, before) as u64;
            (named.name.clone(), Entry { named, dtype: info.ggml_dtype, offset })
        };
        let tensors = file.named_tensors()?.into_iter().map(entry).collect();
        Ok(Self { path, file: opened, tensors })
    }

    /// The names and shapes of all tensors, sorted by name.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.tensors.iter().map(|(name, entry)| (name.as_str(), &entry.named.shape[..]))
    }

    /// The tensor of this name.
    pub(crate) fn get(&self, name: &str) -> Option<GgufTensor<'_>> {
        let entry = self.tensors.get(name)?;
        let (rows, columns) = match (entry.named.rotary_heads, &entry.named.shape[..]) {
            // A reordered vector is reordered number by number.
            (Some(_), [len]) => (*len, 1),
            (_, [columns]) => (1, *columns),
            (_, [rows, rest @ ..]) => (*rows, rest.iter().product()),
            (_, []) => (1, 1),
        };
        Some(GgufTensor { tensors: self, entry, rows, columns })
    }
}

/// Bytes of some numbers, a multiple of the type's block.
fn bytes_of(dtype: GgmlDType, numbers: usize) -> usize {
    numbers / dtype.block_size() * dtype.type_size()
}

/// One tensor: rows in the directory's order. A vector is one row, or as many as it has numbers if it is reordered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GgufTensor<'a> {
    tensors: &'a GgufTensors,
    entry: &'a Entry,
    rows: usize,
    columns: usize,
}

impl<'a> GgufTensor<'a> {
    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers of a row.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// How its numbers are stored.
    pub(crate) fn dtype(&self) -> GgmlDType {
        self.entry.dtype
    }

    /// Its lengths, rows first.
    pub(crate) fn shape(&self) -> &'a [usize] {
        &self.entry.named.shape
    }

    /// The blocks of some rows, as the file has them.
    pub(crate) fn read_blocks(&self, rows: Range<usize>) -> Result<Vec<u8>, GgufError> {
        let row = bytes_of(self.entry.dtype, self.columns);
        let mut bytes = files::zeros(rows.len() * row).map_err(|_| GgufError::NoRoom)?;
        let mut filled = 0;
        for run in self.runs(rows) {
            let len = run.len() * row;
            let offset = self.entry.offset + (run.start * row) as u64;
            let read = self.tensors.file.read_exact_at(&mut bytes[filled..][..len], offset);
            read.map_err(|error| GgufError::Read { path: self.tensors.path.clone(), reason: error.to_string() })?;
            filled += len;
        }
        Ok(bytes)
    }

    /// Appends some rows to `out`, dequantised.
    pub(crate) fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), GgufError> {
        let numbers = rows.len() * self.columns;
        if numbers == 0 {
            return Ok(());
        }
        let error = |reason| GgufError::Tensor { name: self.entry.named.source.clone(), reason };
        let bytes = self.read_blocks(rows)?;
        out.try_reserve(numbers).map_err(|_| GgufError::NoRoom)?;
        match self.entry.dtype.from_data(Cow::Borrowed(&bytes)).dequantize(numbers) {
            Ok(CpuStorage::F32(values)) => out.extend_from_slice(&values),
            Ok(_) => return Err(error("it was not dequantised to float32".to_owned())),
            Err(reason) => return Err(error(reason.to_string())),
        }
        Ok(())
    }

    /// Where the file has rows: ranges of its own rows, in the order that was asked for.
    fn runs(&self, rows: Range<usize>) -> Vec<Range<usize>> {
        let Some(heads) = self.entry.named.rotary_heads else { return vec![rows] };
        let head_dim = self.rows / heads;
        rows.map(|row| interleaved_row(row, head_dim)).map(|row| row..row + 1).collect()
    }
}

/// Reads a tensor that has no name in the directory, in the file's order.
pub(super) fn read_vector(file: &GgufFile, source: &str) -> Result<Vec<f32>, GgufError> {
    let error = |reason| GgufError::Tensor { name: source.to_owned(), reason };
    let info = file.content.tensor_infos.get(source).ok_or_else(|| error("the file does not have it".to_owned()))?;
    if info.ggml_dtype != GgmlDType::F32 {
        return Err(error(format!("its type is {:?}, not F32", info.ggml_dtype)));
    }
    let path = file.path().to_owned();
    let opened = File::open(&path).map_err(|source| GgufError::Open { path: path.clone(), source })?;
    let mut bytes = vec![0; bytes_of(info.ggml_dtype, info.shape.elem_count())];
    let read = opened.read_exact_at(&mut bytes, file.content.tensor_data_offset + info.offset);
    read.map_err(|error| GgufError::Read { path, reason: error.to_string() })?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number)).collect())
}

/// Returns where GGUF keeps a row of a query or key head: it interleaves the two rotary halves, which the directory
/// keeps apart.
fn interleaved_row(row: usize, head_dim: usize) -> usize {
    let (head, place) = (row / head_dim, row % head_dim);
    let half = head_dim / 2;
    head * head_dim + 2 * (place % half) + place / half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotary_halves_are_taken_apart_head_by_head() {
        let rows: Vec<usize> = (0..12).map(|row| interleaved_row(row, 6)).collect();
        assert_eq!(rows, [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
    }
}
