//! Tensors in slices of their first dimension: one for each expert, or two for each head.

use std::ops::Range;

use super::tensor::{Part, Tensor};
use crate::engine::{
    WeightDtype,
    native::weights::{Rows, SomeRows, WeightsError},
};

/// One slice, as rows of outputs by inputs.
pub(super) struct Slice {
    columns: usize,
    numbers: Vec<f32>,
}

impl Slice {
    /// Reads a slice of a tensor.
    pub(super) fn read(tensor: &Tensor, part: &Part, rows: &dyn Rows) -> Result<Self, WeightsError> {
        let mut numbers = Vec::new();
        if tensor.shape.len() == 1 {
            rows.read(0..1, &mut numbers)?;
            return Ok(Self { columns: part.rows.len(), numbers: numbers[part.rows.clone()].to_vec() });
        }
        rows.read(part.rows.clone(), &mut numbers)?;
        let (inner, columns) = slice_shape(tensor, part);
        if part.transposed {
            numbers = transposed(&numbers, columns);
            return Ok(Self { columns: inner, numbers });
        }
        Ok(Self { columns, numbers })
    }
}

/// A slice whose numbers are codes, where it is as such: rows of a matrix, or a matrix that is kept outputs by inputs.
pub(super) fn coded<'a>(tensor: &Tensor, part: &Part, rows: &'a dyn Rows) -> Option<SomeRows<'a>> {
    let coded = rows.coded()?;
    match (&tensor.shape[..], part.transposed) {
        ([_, _], false) => Some(SomeRows::new(coded, part.rows.clone())),
        ([slices, inputs, outputs], true) if coded.rows() == slices * outputs && coded.columns() == *inputs => {
            Some(SomeRows::new(coded, part.rows.start * outputs..part.rows.end * outputs))
        }
        _ => None,
    }
}

/// Rows and columns of a slice as the checkpoint has it: some numbers of a vector, some rows of a table, or one
/// of several tables.
fn slice_shape(tensor: &Tensor, part: &Part) -> (usize, usize) {
    match tensor.shape[..] {
        [_] => (1, part.rows.len()),
        [_, columns] => (part.rows.len(), columns),
        [_, rows, columns] => (rows, columns),
        _ => unreachable!("a tensor in slices has up to three dimensions"),
    }
}

impl Rows for Slice {
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

/// Rows and columns of a slice as a matrix has them.
pub(super) fn matrix_shape(tensor: &Tensor, part: &Part) -> (usize, usize) {
    let (rows, columns) = slice_shape(tensor, part);
    if part.transposed { (columns, rows) } else { (rows, columns) }
}

/// Turns a slice that was read from its matrix to how the checkpoint has it; all numbers are of this type.
pub(super) fn turned_back(tensor: &Tensor, part: &Part, dtype: WeightDtype, matrix: &[u8], out: &mut [u8]) {
    if !part.transposed {
        out.copy_from_slice(matrix);
        return;
    }
    let (_, columns) = matrix_shape(tensor, part);
    let numbers: Vec<&[u8]> = matrix.chunks_exact(dtype.size()).collect();
    for (out, number) in out.chunks_exact_mut(dtype.size()).zip(transposed(&numbers, columns)) {
        out.copy_from_slice(number);
    }
}

/// A table of so many columns, column by column.
fn transposed<T: Copy>(table: &[T], columns: usize) -> Vec<T> {
    (0..columns).flat_map(|column| table.iter().skip(column).step_by(columns)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_turned_and_turned_back() {
        let table = [1, 2, 3, 4, 5, 6];
        let turned = transposed(&table, 3);
        assert_eq!(turned, [1, 4, 2, 5, 3, 6]);
        assert_eq!(transposed(&turned, 2), table);
    }
}
