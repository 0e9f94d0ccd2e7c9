//! Rows of f32, and who works on them.

use super::{KernelSet, LANES, Pool};

/// Instructions and threads.
pub(crate) struct Processor {
    /// The instructions.
    pub(crate) set: KernelSet,
    /// The threads.
    pub(crate) pool: Pool,
}

/// Rows of numbers, each padded to whole vectors.
#[derive(Debug, Default)]
pub(crate) struct States {
    pub(super) numbers: Vec<f32>,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) stride: usize,
}

impl States {
    /// Makes room for as many rows; what they hold is left over from before.
    pub(crate) fn reshape(&mut self, rows: usize, columns: usize) {
        let stride = columns.next_multiple_of(LANES);
        self.numbers.resize(rows * stride, 0.0);
        (self.rows, self.columns, self.stride) = (rows, columns, stride);
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers of a row.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// A row.
    pub(crate) fn row(&self, row: usize) -> &[f32] {
        &self.numbers[row * self.stride..][..self.columns]
    }

    /// A row, to be written.
    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.numbers[row * self.stride..][..self.columns]
    }

    /// All rows, to be written.
    pub(crate) fn rows_mut(&mut self) -> Vec<&mut [f32]> {
        let columns = self.columns;
        self.numbers.chunks_exact_mut(self.stride).map(|row| &mut row[..columns]).collect()
    }
}
