//! Tensors that are in memory already.

use std::ops::Range;

use super::{NumberType, Rows, Weights, WeightsError, as_rows};

/// One tensor.
#[derive(Debug)]
pub(crate) struct Given<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Rows first.
    pub(crate) shape: &'a [usize],
    /// Of its numbers.
    pub(crate) number_type: NumberType,
    /// Little-endian, row by row; as many as the shape says.
    pub(crate) bytes: &'a [u8],
}

impl Weights for Vec<Given<'_>> {
    fn tensors(&self) -> Vec<(&str, &[usize])> {
        self.iter().map(|tensor| (tensor.name, tensor.shape)).collect()
    }

    fn rows(&self, name: &str) -> Result<Box<dyn Rows + '_>, WeightsError> {
        let tensor = self.iter().find(|tensor| tensor.name == name);
        let tensor = tensor.ok_or_else(|| WeightsError::Missing(vec![name.to_owned()]))?;
        Ok(Box::new(tensor))
    }
}

impl Rows for &Given<'_> {
    fn rows(&self) -> usize {
        as_rows(self.shape).0
    }

    fn columns(&self) -> usize {
        as_rows(self.shape).1
    }

    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        let row = self.columns() * self.number_type.size();
        let bytes = self.bytes.get(rows.start * row..rows.end * row);
        let bytes = bytes.ok_or_else(|| WeightsError::Missing(vec![self.name.to_owned()]))?;
        self.number_type.widen(bytes, out);
        Ok(())
    }
}
