//! Tensors in slices of their first dimension: one for each expert, or two for each head.

use std::{num::NonZero, panic::resume_unwind};

use super::tensor::{Tensor, TensorSlice};
use crate::{
    engine::{
        WeightDtype,
        native::weights::{Rows, SomeRows, Table, WeightsError},
    },
    weights::transposed,
};

/// The most bytes of slices that are in memory at once, unless one alone has more.
const SLICES_AT_ONCE: usize = 256 << 20;

/// How many slices of a tensor are read at once: one on each thread that the system has, as far as there is memory for.
pub(super) fn at_once(tensor: &Tensor) -> usize {
    let slice = size_of::<f32>() * tensor.numbers() / tensor.parts.len().max(1);
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    threads.min(SLICES_AT_ONCE / slice.max(1)).max(1)
}

/// Reads some slices of a tensor, each on a thread of its own.
pub(super) fn read_together(
    tensor: &Tensor,
    parts: &[TensorSlice],
    rows: &dyn Rows,
) -> Result<Vec<Table>, WeightsError> {
    let [first, others @ ..] = parts else { return Ok(Vec::new()) };
    std::thread::scope(|scope| {
        let others: Vec<_> = others.iter().map(|part| scope.spawn(move || read_slice(tensor, part, rows))).collect();
        let first = read_slice(tensor, first, rows);
        let others = others.into_iter().map(|reading| reading.join().unwrap_or_else(|panic| resume_unwind(panic)));
        std::iter::once(first).chain(others).collect()
    })
}

/// Reads a slice of a tensor, as rows of outputs by inputs.
pub(super) fn read_slice(tensor: &Tensor, part: &TensorSlice, rows: &dyn Rows) -> Result<Table, WeightsError> {
    let mut numbers = Vec::new();
    if tensor.shape.len() == 1 {
        rows.read(0..1, &mut numbers)?;
        return Ok(Table { columns: part.rows.len(), numbers: numbers[part.rows.clone()].to_vec() });
    }
    let (inner, columns) = slice_shape(tensor, part);
    // What is turned here may be stored turned already.
    if part.transposed && part.rows.len() == 1 && rows.read_turned(part.rows.start, &mut numbers)? {
        return Ok(Table { columns: inner, numbers });
    }
    rows.read(part.rows.clone(), &mut numbers)?;
    if part.transposed {
        numbers = transposed(&numbers, columns);
        return Ok(Table { columns: inner, numbers });
    }
    Ok(Table { columns, numbers })
}

/// A slice whose numbers are codes, where it is as such: rows of a matrix, or a matrix that is kept outputs by inputs.
pub(super) fn coded<'a>(tensor: &Tensor, part: &TensorSlice, rows: &'a dyn Rows) -> Option<SomeRows<'a>> {
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
fn slice_shape(tensor: &Tensor, part: &TensorSlice) -> (usize, usize) {
    match tensor.shape[..] {
        [_] => (1, part.rows.len()),
        [_, columns] => (part.rows.len(), columns),
        [_, rows, columns] => (rows, columns),
        _ => unreachable!("a tensor in slices has up to three dimensions"),
    }
}

/// Rows and columns of a slice as a matrix has them.
pub(super) fn matrix_shape(tensor: &Tensor, part: &TensorSlice) -> (usize, usize) {
    let (rows, columns) = slice_shape(tensor, part);
    if part.transposed { (columns, rows) } else { (rows, columns) }
}

/// Turns a slice that was read from its matrix to how the checkpoint has it; all numbers are of this type.
pub(super) fn turned_back(tensor: &Tensor, part: &TensorSlice, dtype: WeightDtype, matrix: &[u8], out: &mut [u8]) {
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
