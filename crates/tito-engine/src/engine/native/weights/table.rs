//! Rows that are in memory already, as numbers.

use std::ops::Range;

use super::{Rows, WeightsError};

/// Rows of so many columns each, one after the other.
pub(crate) struct Table {
    /// How many columns there are; at least one.
    pub(crate) columns: usize,
    /// The numbers of all rows.
    pub(crate) numbers: Vec<f32>,
}

impl Rows for Table {
    fn rows(&self) -> usize {
        self.numbers.len() / self.columns
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        out.extend_from_slice(&self.numbers[rows.start * self.columns..rows.end * self.columns]);
        Ok(())
    }
}
