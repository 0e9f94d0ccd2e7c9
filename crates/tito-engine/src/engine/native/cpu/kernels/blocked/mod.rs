//! Matrices that stay in the blocks of a GGUF file, and are widened to bf16 inside of their products.
//!
//! The product has the same bits as with the widened matrix, whatever activations are. It only reads less memory.

mod block;
mod plain;
#[cfg(test)]
mod tests;
mod unpack;
mod vectors;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Range;

use half::bf16;
use parking_lot::Mutex;

use self::{
    block::{Block, Layout},
    unpack::compute,
    vectors::TimesFew,
};
use super::{
    KernelSet, LANES, Operand, Packed, Pool, Precision, Processor, States,
    few::FewRows,
    pages::{Pages, Stored},
    panels::{self, OfRows, Widen},
    parts::Parts,
};
use crate::engine::native::{
    backend::NoRoom,
    weights::{BlockFormat, BlockRows, Rows, WeightsError},
};

/// A weight matrix of `outputs` rows of `inputs` numbers, in parts of different formats; rows that were never written are
/// zeros.
#[derive(Debug)]
pub(crate) struct Blocked {
    outputs: usize,
    inputs: usize,
    parts: Vec<Part>,
}

/// Rows of one format.
#[derive(Debug)]
struct Part {
    /// From the first of a block of the matrix to the last of one, or of all.
    rows: Range<usize>,
    layout: Layout,
    bytes: Pages<u8>,
}

impl Blocked {
    /// No parts yet.
    pub(crate) fn zeros(outputs: usize, inputs: usize) -> Self {
        Self { outputs, inputs, parts: Vec::new() }
    }

    /// The number of rows.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Numbers of a row.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// Whether nothing was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The bytes of its parts.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes.len() as u64).sum()
    }

    /// The bytes that a matrix of these rows has, if it takes them.
    pub(crate) fn bytes_of(rows: &dyn Rows) -> Option<u64> {
        let (format, _) = rows.blocks().filter(|_| Self::zeros(rows.rows(), rows.columns()).takes(0, rows))?;
        let blocks = rows.rows().div_ceil(LANES);
        blocks.checked_mul(Layout::new(format).block_bytes(rows.columns())).map(|bytes| bytes as u64)
    }

    /// Whether `rows` would stay in their blocks from `first` on: where their blocks are of a known format, and they share
    /// no block of the matrix with others.
    pub(crate) fn takes(&self, first: usize, rows: &dyn Rows) -> bool {
        let range = first..first + rows.rows();
        let overlaps = |part: &&Part| part.rows.start < range.end && range.start < part.rows.end;
        let is_apart = self.parts.iter().filter(overlaps).all(|part| part.rows == range);
        let is_whole = first.is_multiple_of(LANES) && (range.end.is_multiple_of(LANES) || range.end == self.outputs);
        let has_blocks = rows.blocks().is_some_and(|(format, _)| self.inputs.is_multiple_of(format.numbers));
        is_apart && is_whole && !range.is_empty() && has_blocks
    }

    /// Overwrites rows from `first` on with all of `rows`.
    ///
    /// # Panics
    /// If the matrix does not [take](Self::takes) them, they have another length, or go beyond the last one.
    pub(crate) fn write_rows(&mut self, pool: &mut Pool, first: usize, rows: &dyn Rows) -> Result<(), WeightsError> {
        let range = first..first + rows.rows();
        assert_eq!(rows.columns(), self.inputs, "rows of as many numbers");
        assert!(range.end <= self.outputs && self.takes(first, rows), "rows that the matrix takes");
        let Some((format, rows)) = rows.blocks() else { return Ok(()) };
        let part = Part::read(pool, range, self.inputs, format, rows)?;
        self.parts.retain(|other| other.rows != part.rows);
        self.parts.push(part);
        self.parts.sort_by_key(|part| part.rows.start);
        Ok(())
    }

    /// The part that has a row.
    fn part(&self, row: usize) -> Option<&Part> {
        self.parts.iter().find(|part| part.rows.contains(&row))
    }

    /// Reads one row.
    ///
    /// # Panics
    /// If there is no such row, or `row` has another length than `inputs`.
    pub(crate) fn read_row(&self, index: usize, row: &mut [f32]) {
        assert!(index < self.outputs, "{} rows", self.outputs);
        assert_eq!(row.len(), self.inputs, "a whole row");
        let Some(part) = self.part(index) else { return row.fill(0.0) };
        let (block, lane) = (part.block(index / LANES, self.inputs), index % LANES);
        for (input, number) in row.iter_mut().enumerate() {
            *number = bf16::from_f32(block.number(lane, input)).to_f32();
        }
    }

    /// The matrix of the same numbers without blocks.
    pub(crate) fn widened(&self, pool: &mut Pool, precision: Precision) -> Result<Packed, WeightsError> {
        panels::packed(pool, precision, self.shape(), |index, row| self.read_row(index, row))
    }

    /// `out[r] (+)= matrix * input[r]` for every row of `input`.
    ///
    /// # Panics
    /// If shapes do not fit together.
    pub(crate) fn multiply(&self, processor: &mut Processor, input: &Operand, out: &mut States, accumulate: bool) {
        panels::multiply(processor, input, self, out, accumulate);
    }
}

impl Widen for Blocked {
    fn shape(&self) -> [usize; 2] {
        [self.outputs, self.inputs]
    }

    fn precision(&self, _activations: Precision) -> Precision {
        Precision::Bf16
    }

    fn widen(&self, set: KernelSet, block: usize, panel: &mut Stored, part: Range<usize>) {
        let Stored::Bf16(numbers) = panel else { unreachable!("the precision that was asked for") };
        let to = &mut numbers[part];
        let Some(part) = self.part(block * LANES) else { return to.fill(0) };
        let (widened, padding) = to.split_at_mut(self.inputs * LANES);
        part.block(block, self.inputs).widen(set, widened);
        padding.fill(0);
    }

    unsafe fn multiply_few(&self, set: KernelSet, blocks: Range<usize>, rows: &OfRows<'_>, c: *mut f32) -> usize {
        let Some(part) = self.part(blocks.start * LANES) else { return 0 };
        let (first_of_part, end) = (part.rows.start / LANES, blocks.end.min(part.rows.end.div_ceil(LANES)));
        let (layout, block_bytes) = (part.layout, part.layout.block_bytes(self.inputs));
        let bytes = &part.bytes[(blocks.start - first_of_part) * block_bytes..(end - first_of_part) * block_bytes];
        let done = FewRows::with(set, rows, self.inputs, c, |rows| {
            // SAFETY: the bytes are of blocks of the layout; the caller has room for the products.
            unsafe { compute(set, &layout, TimesFew { layout, bytes, block_bytes, rows }) };
        });
        if done { end - blocks.start } else { 0 }
    }
}

impl Part {
    /// Reads rows and puts those of each block side by side.
    fn read(
        pool: &mut Pool,
        range: Range<usize>,
        inputs: usize,
        format: BlockFormat,
        rows: &dyn BlockRows,
    ) -> Result<Self, WeightsError> {
        let layout = Layout::new(format);
        let block_bytes = layout.block_bytes(inputs);
        let blocks = range.len().div_ceil(LANES);
        let len = blocks.checked_mul(block_bytes).ok_or(WeightsError::NoRoom)?;
        let mut bytes = Pages::zeros(len).map_err(|NoRoom| WeightsError::NoRoom)?;
        let (failure, parts) = (Mutex::new(None), Parts::new(&mut bytes));
        pool.for_each(blocks, &|block| {
            let own = block * LANES..range.len().min((block + 1) * LANES);
            // SAFETY: a block is worked on once.
            let to = unsafe { parts.part(block * block_bytes, block_bytes) };
            match rows.read(own) {
                Ok(read) => put(&layout, &read, inputs, to),
                Err(error) => *failure.lock() = Some(error),
            }
        });
        failure.into_inner().map_or(Ok(Self { rows: range, layout, bytes }), Err)
    }

    /// A block of the matrix that this part has.
    fn block(&self, block: usize, inputs: usize) -> Block<'_> {
        let bytes = self.layout.block_bytes(inputs);
        let first = self.rows.start / LANES;
        Block { layout: self.layout, bytes: &self.bytes[(block - first) * bytes..][..bytes] }
    }
}

/// Puts rows of a file side by side.
fn put(layout: &Layout, rows: &[u8], inputs: usize, to: &mut [u8]) {
    let format = layout.format;
    let row_bytes = inputs / format.numbers * format.bytes();
    for (lane, row) in rows.chunks_exact(row_bytes).enumerate() {
        let pieces = to.chunks_exact_mut(layout.piece_bytes);
        for (piece, block) in pieces.zip(row.chunks_exact(format.bytes())) {
            layout.write(piece, lane, &format.split(block));
        }
    }
}
