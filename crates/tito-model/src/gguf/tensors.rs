//! Numbers of a GGUF file, under the names and in the order of a Hugging Face directory.
//!
//! Read by position, so that several threads can; no more is in memory than the rows that were asked for.

use std::{collections::BTreeMap, fs::File, ops::Range, os::unix::fs::FileExt, path::PathBuf};

use candle_core::quantized::GgmlDType;

use super::{
    GgufError, GgufFile,
    hugging_face::{Groups, Layout, NamedTensor, Source, TablePart},
    stored::Stored,
    tensor_type::{TensorType, mxfp4_codes},
};
use crate::files::{self, Watched};

/// The tensors of a file.
#[derive(Debug)]
pub struct GgufTensors {
    path: PathBuf,
    file: File,
    /// From before the header was read.
    watched: Watched,
    tensors: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    named: NamedTensor,
    /// Where the numbers of each of its sources are.
    stored: Vec<Stored>,
}

impl GgufTensors {
    /// Checks the file against the table of names, and opens it.
    pub fn open(file: &GgufFile) -> Result<Self, GgufError> {
        let path = file.path().to_owned();
        let opened = File::open(&path).map_err(|source| GgufError::Open { path: path.clone(), source })?;
        let entry = |named: NamedTensor| {
            let mut stored: Vec<Stored> = named.sources.iter().map(|source| stored_rows(file, source)).collect();
            if let (Layout::Slice(slice), [whole]) = (&named.layout, &mut stored[..]) {
                let numbers = named.shape.iter().product::<usize>();
                *whole = whole.part(slice * numbers, numbers);
            }
            (named.name.clone(), Entry { named, stored })
        };
        let tensors = file.named_tensors()?.into_iter().map(entry).collect();
        Ok(Self { path, file: opened, watched: file.watched.clone(), tensors })
    }

    /// Refuses a file that somebody wrote to since its header was read. To be asked once all numbers were read.
    pub fn check_unchanged(&self) -> Result<(), GgufError> {
        Ok(self.watched.check()?)
    }

    /// The names and shapes of all tensors, sorted by name.
    pub fn shapes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.tensors.iter().map(|(name, entry)| (name.as_str(), &entry.named.shape[..]))
    }

    /// The names that the file has for what a tensor is made of.
    #[cfg(any(test, feature = "internals"))]
    pub fn sources(&self, name: &str) -> impl Iterator<Item = &str> {
        self.tensors.get(name).into_iter().flat_map(|entry| &entry.named.sources).map(|source| source.name.as_str())
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Option<GgufTensor<'_>> {
        let entry = self.tensors.get(name)?;
        let (rows, columns) = match (&entry.named.layout, &entry.named.shape[..]) {
            // A reordered vector is reordered number by number.
            (Layout::Rows(_), [len]) => (*len, 1),
            (_, [columns]) => (1, *columns),
            (_, [rows, rest @ ..]) => (*rows, rest.iter().product()),
            (_, []) => (1, 1),
        };
        Some(GgufTensor { tensors: self, entry, rows, columns })
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), GgufError> {
        let read = self.file.read_exact_at(bytes, offset);
        read.map_err(|error| GgufError::Read { path: self.path.clone(), reason: error.to_string() })
    }
}

/// Where those are of the rows of it that count.
fn stored_rows(file: &GgufFile, source: &Source) -> Stored {
    let (all, row) = (Stored::of(file, &source.name), source.shape.iter().skip(1).product::<usize>());
    source.rows.as_ref().map_or(all, |rows| all.part(rows.start * row, rows.len() * row))
}

/// One tensor: rows in the directory's order. A vector is one row, or as many as it has numbers if it is reordered.
#[derive(Debug, Clone, Copy)]
pub struct GgufTensor<'a> {
    tensors: &'a GgufTensors,
    entry: &'a Entry,
    rows: usize,
    columns: usize,
}

impl<'a> GgufTensor<'a> {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Its lengths, rows first.
    pub fn shape(&self) -> &'a [usize] {
        &self.entry.named.shape
    }

    /// How the blocks are stored that its rows are made of, if they are made of blocks that candle knows and nothing else
    /// is done with their numbers.
    pub fn blocks(&self) -> Option<GgmlDType> {
        match (&self.entry.named, &self.entry.stored[..]) {
            (
                NamedTensor { change: Some(_), .. }
                | NamedTensor { layout: Layout::Groups(_) | Layout::Columns(_), .. },
                _,
            ) => None,
            (_, [Stored { dtype: TensorType::Ggml(dtype), .. }]) => Some(*dtype),
            _ => None,
        }
    }

    /// The blocks of some rows, as the file has them; none if it is put together of several tensors.
    pub fn read_blocks(&self, rows: Range<usize>) -> Result<Vec<u8>, GgufError> {
        let stored = self.entry.stored[0];
        let row = stored.bytes(self.columns);
        let mut bytes = files::zeros(rows.len() * row).map_err(|_| GgufError::NoRoom)?;
        let mut filled = 0;
        for run in self.runs(rows) {
            let len = run.len() * row;
            self.tensors.read_at(&mut bytes[filled..][..len], stored.offset + (run.start * row) as u64)?;
            filled += len;
        }
        Ok(bytes)
    }

    /// Rows and columns of the matrix that its numbers are in the file, if that is one in MXFP4 and nothing else is done with
    /// them: outputs by inputs, also where the directory has a table for each expert, inputs by outputs.
    pub fn codes(&self) -> Option<(usize, usize)> {
        let Entry { named, stored } = self.entry;
        if named.change.is_some() || stored.iter().any(|stored| stored.dtype != TensorType::Mxfp4) {
            return None;
        }
        match &named.layout {
            Layout::Groups(Groups { count, parts, turned: true, .. }) if *count == self.rows => {
                let [TablePart { columns, turned: false }, others @ ..] = &parts[..] else { return None };
                let all = stored.iter().map(|stored| stored.numbers).sum::<usize>();
                let is_alike = others.iter().all(|part| part == &parts[0])
                    && stored.iter().all(|other| other.numbers == stored[0].numbers);
                is_alike.then_some((all / columns, *columns))
            }
            Layout::Whole | Layout::Rows(_) | Layout::Slice(_) if named.shape.len() == 2 && stored.len() == 1 => {
                Some((self.rows, self.columns))
            }
            _ => None,
        }
    }

    /// The codes of some rows of that matrix, one for each number, and for each 32 of them the byte that says by which power
    /// of two they are multiplied.
    ///
    /// # Panics
    /// If there is no such matrix, or it has no such rows.
    pub fn read_codes(&self, rows: Range<usize>) -> Result<(Vec<u8>, Vec<u8>), GgufError> {
        let (all, columns) = self.codes().expect("a matrix in MXFP4");
        assert!(rows.end <= all, "{all} rows");
        let blocks = match &self.entry.named.layout {
            Layout::Groups(groups) => self.read_group_rows(groups, columns, all / groups.count, rows)?,
            _ => self.read_blocks(rows)?,
        };
        Ok(mxfp4_codes(&blocks))
    }

    /// The blocks of some rows of tables that are put together row by row, each of so many rows.
    fn read_group_rows(
        &self,
        Groups { parts, alternate, .. }: &Groups,
        columns: usize,
        table: usize,
        rows: Range<usize>,
    ) -> Result<Vec<u8>, GgufError> {
        let row = self.entry.stored[0].bytes(columns);
        let mut blocks = files::zeros(rows.len() * row).map_err(|_| GgufError::NoRoom)?;
        let of_part = table / parts.len();
        for (place, to) in rows.zip(blocks.chunks_exact_mut(row)) {
            let (group, place) = (place / table, place % table);
            let (part, place) = if *alternate {
                (place % parts.len(), place / parts.len())
            } else {
                (place / of_part, place % of_part)
            };
            let stored = self.entry.stored[part];
            self.tensors.read_at(to, stored.offset + ((group * of_part + place) * row) as u64)?;
        }
        Ok(blocks)
    }

    /// Appends some rows to `out`, dequantised.
    pub fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), GgufError> {
        let numbers = rows.len() * self.columns;
        if numbers == 0 {
            return Ok(());
        }
        out.try_reserve(numbers).map_err(|_| GgufError::NoRoom)?;
        let first = out.len();
        let places = rows.start * self.columns..rows.end * self.columns;
        match &self.entry.named.layout {
            Layout::Groups(groups) => self.read_groups(groups, places, out)?,
            Layout::Numbers(said) => out.extend_from_slice(&said[places]),
            Layout::Whole | Layout::Rows(_) | Layout::Columns(_) | Layout::Slice(_) => {
                let bytes = self.read_blocks(rows)?;
                out.extend_from_slice(&self.dequantized(0, &bytes, numbers)?);
            }
        }
        if let Layout::Columns(order) = self.entry.named.layout {
            for row in out[first..].chunks_exact_mut(self.columns) {
                let in_file = row.to_vec();
                for (place, number) in row.iter_mut().enumerate() {
                    *number = in_file[order.in_file(place, self.columns)];
                }
            }
        }
        if let Some(change) = self.entry.named.change {
            change.apply(&mut out[first..]);
        }
        Ok(())
    }

    /// Appends a row that is a table which the file has turned, as the file has it; whether it is one.
    pub fn read_turned(&self, row: usize, out: &mut Vec<f32>) -> Result<bool, GgufError> {
        match &self.entry.named {
            NamedTensor { layout: Layout::Groups(groups), change: None, .. }
                if groups.turned && groups.count == self.rows =>
            {
                let as_it_is = Groups { turned: false, ..groups.clone() };
                out.append(&mut self.group(&as_it_is, row)?);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn dequantized(&self, source: usize, bytes: &[u8], numbers: usize) -> Result<Vec<f32>, GgufError> {
        let name = || self.entry.named.sources[source].name.clone();
        let dequantized = self.entry.stored[source].dtype.dequantize(bytes, numbers);
        dequantized.map_err(|reason| GgufError::Tensor { name: name(), reason })
    }

    /// Appends some of the numbers of a tensor that is put together of groups.
    fn read_groups(&self, groups: &Groups, numbers: Range<usize>, out: &mut Vec<f32>) -> Result<(), GgufError> {
        let length = self.rows * self.columns / groups.count.max(1);
        for group in numbers.start / length..numbers.end.div_ceil(length) {
            let table = self.group(groups, group)?;
            let begin = group * length;
            let wanted = numbers.start.max(begin) - begin..numbers.end.min(begin + length) - begin;
            out.extend_from_slice(&table[wanted]);
        }
        Ok(())
    }

    /// One table, put together.
    fn group(&self, groups: &Groups, group: usize) -> Result<Vec<f32>, GgufError> {
        let mut parts = Vec::new();
        for (source, TablePart { columns, turned }) in groups.parts.iter().copied().enumerate() {
            let stored = self.entry.stored[source];
            let numbers = stored.numbers / groups.count;
            let part = stored.part(group * numbers, numbers);
            let mut bytes = files::zeros(part.bytes(numbers)).map_err(|_| GgufError::NoRoom)?;
            self.tensors.read_at(&mut bytes, part.offset)?;
            let table = self.dequantized(source, &bytes, numbers)?;
            // As many columns as rows, if it is turned.
            let (table, columns) =
                if turned { (transposed(&table, columns), numbers / columns) } else { (table, columns) };
            parts.push((table, columns));
        }
        let columns = parts.first().map_or(1, |(_, columns)| *columns);
        let joined = if groups.alternate {
            alternating(&parts)
        } else {
            parts.into_iter().flat_map(|(table, _)| table).collect()
        };
        Ok(if groups.turned { transposed(&joined, columns) } else { joined })
    }

    /// Where the file has rows: ranges of its own rows, in the order that was asked for.
    fn runs(&self, rows: Range<usize>) -> Vec<Range<usize>> {
        let Layout::Rows(order) = self.entry.named.layout else { return vec![rows] };
        let mut runs: Vec<Range<usize>> = Vec::new();
        for row in rows.map(|row| order.in_file(row, self.rows)) {
            match runs.last_mut() {
                Some(run) if run.end == row => run.end += 1,
                _ => runs.push(row..row + 1),
            }
        }
        runs
    }
}

/// How many rows or columns of a table are turned at a time, so that both sides stay near.
const TURNED_AT_ONCE: usize = 16;

/// A table of so many columns, column by column.
fn transposed(table: &[f32], columns: usize) -> Vec<f32> {
    let rows = table.len() / columns.max(1);
    let mut turned = vec![0.0; table.len()];
    for row in (0..rows).step_by(TURNED_AT_ONCE) {
        for column in 0..columns {
            for row in row..rows.min(row + TURNED_AT_ONCE) {
                turned[column * rows + row] = table[row * columns + column];
            }
        }
    }
    turned
}

/// A row of each of the tables in turn.
fn alternating(tables: &[(Vec<f32>, usize)]) -> Vec<f32> {
    let rows = tables.first().map_or(0, |(table, columns)| table.len() / columns);
    let row = |row: usize| tables.iter().flat_map(move |(table, columns)| &table[row * columns..][..*columns]);
    (0..rows).flat_map(row).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::{
        fixture::Gguf,
        hugging_face::{ByKeyHead, Order},
    };

    /// Rows of blocks of a file with one tensor, in this layout.
    fn laid_out(layout: Layout) -> GgufTensors {
        let mut gguf = Gguf::tiny();
        gguf.add_tensor("table", &[8, 64], GgmlDType::Q8_0);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.gguf");
        gguf.write(&path);
        let file = GgufFile::open(&path).unwrap();
        let source = Source { name: "table".to_owned(), shape: vec![8, 64], rows: None };
        let stored = vec![stored_rows(&file, &source)];
        let sources = vec![source];
        let named = NamedTensor { name: "table".to_owned(), shape: vec![8, 64], sources, layout, change: None };
        let tensors = [("table".to_owned(), Entry { named, stored })].into_iter().collect();
        GgufTensors { path: path.clone(), file: File::open(path).unwrap(), watched: file.watched, tensors }
    }

    #[test]
    fn a_file_that_is_another_one_than_its_header_was_read_of_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.gguf");
        Gguf::tiny().write(&path);
        let file = GgufFile::open(&path).unwrap();
        let unchanged = GgufTensors {
            path: path.clone(),
            file: File::open(&path).unwrap(),
            watched: file.watched.clone(),
            tensors: BTreeMap::new(),
        };
        unchanged.check_unchanged().unwrap();
        Gguf::tiny().write(&path);
        let error = unchanged.check_unchanged().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{} was changed while it was read", path.display())), "{error}");
    }

    #[test]
    fn rows_stay_in_blocks_in_another_order_and_columns_do_not() {
        let order = |width| Order::ByKeyHead(ByKeyHead { before: 2 * width, key_heads: 2, shared_by: 3, width });
        let read = |tensors: &GgufTensors| {
            let (tensor, mut numbers) = (tensors.get("table").unwrap(), Vec::new());
            tensor.read(0..8, &mut numbers).unwrap();
            (tensor.blocks(), numbers, tensor.read_blocks(0..8).unwrap())
        };
        let (blocks, whole, bytes) = read(&laid_out(Layout::Whole));
        let (row_blocks, rows, row_bytes) = read(&laid_out(Layout::Rows(order(1))));
        let (column_blocks, columns, _) = read(&laid_out(Layout::Columns(order(8))));
        assert_eq!((blocks, row_blocks, column_blocks), (Some(GgmlDType::Q8_0), Some(GgmlDType::Q8_0), None));
        // Of heads 0, 3, 1, 4, 2, 5 in the file.
        let in_file = [0, 1, 2, 4, 6, 3, 5, 7];
        for (row, from) in in_file.into_iter().enumerate() {
            assert_eq!(rows[row * 64..][..64], whole[from * 64..][..64]);
            assert_eq!(row_bytes[row * 68..][..68], bytes[from * 68..][..68]);
        }
        for (head, from) in in_file.into_iter().enumerate() {
            assert_eq!(columns[64 + head * 8..][..8], whole[64 + from * 8..][..8]);
        }
    }

    #[test]
    fn tables_are_turned_and_their_rows_alternate() {
        let table: Vec<f32> = (0..6_u8).map(f32::from).collect();
        assert_eq!(transposed(&table, 3), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let alternating = alternating(&[(vec![0.0, 1.0, 2.0, 3.0], 2), (vec![4.0, 5.0, 6.0, 7.0], 2)]);
        assert_eq!(alternating, [0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0]);
    }
}
