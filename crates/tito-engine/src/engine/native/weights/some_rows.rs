//! Some of the rows of a tensor of codes.

use std::ops::Range;

use super::{
    Rows, WeightsError,
    coded::{Code, CodedRows, Codes, widen},
};

/// Some of other rows.
pub(crate) struct SomeRows<'a> {
    of: &'a dyn CodedRows,
    rows: Range<usize>,
}

impl<'a> SomeRows<'a> {
    /// # Panics
    /// If there are no such rows.
    pub(crate) fn new(of: &'a dyn CodedRows, rows: Range<usize>) -> Self {
        assert!(rows.end <= of.rows(), "{} rows", of.rows());
        Self { of, rows }
    }
}

impl CodedRows for SomeRows<'_> {
    fn code(&self) -> Code {
        self.of.code()
    }

    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn columns(&self) -> usize {
        self.of.columns()
    }

    fn group(&self) -> usize {
        self.of.group()
    }

    fn is_rounded(&self) -> bool {
        self.of.is_rounded()
    }

    fn read(&self, rows: Range<usize>) -> Result<Codes, WeightsError> {
        self.of.read(self.rows.start + rows.start..self.rows.start + rows.end)
    }
}

impl Rows for SomeRows<'_> {
    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn columns(&self) -> usize {
        self.of.columns()
    }

    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        widen(self, rows, out)
    }

    fn coded(&self) -> Option<&dyn CodedRows> {
        Some(self)
    }
}
