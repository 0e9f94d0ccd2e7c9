//! Weight matrices, which are overwritten in place.
//!
//! Owns how numbers come to a device and back. Refuses arithmetic.

use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor, WithDType};
use half::bf16;

use super::{
    buffer::TensorKind,
    failure::{done, with_room},
};
use crate::engine::{
    WeightDtype,
    native::{
        backend::NoRoom,
        cpu::Pool,
        weights::{Rows, WeightsError},
    },
};

/// How many numbers one thread reads at a time.
const READ_NUMBERS: usize = 4 << 20;

/// A weight matrix, `[outputs, inputs]`.
#[derive(Debug)]
pub(crate) struct Matrix {
    tensor: Tensor,
}

impl Matrix {
    pub(super) fn zeros(
        TensorKind { device, dtype }: TensorKind<'_>,
        outputs: usize,
        inputs: usize,
    ) -> std::result::Result<Self, NoRoom> {
        let tensor = Tensor::zeros((outputs, inputs), dtype, device).map_err(|_| NoRoom)?;
        Ok(Self { tensor })
    }

    /// The numbers.
    pub(super) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The bytes of the numbers.
    pub(super) fn bytes(&self) -> u64 {
        (self.tensor.elem_count() * self.tensor.dtype().size_in_bytes()) as u64
    }

    /// Overwrites rows from `first` on with all of `rows`.
    pub(super) fn write_rows(
        &self,
        pool: &mut Pool,
        first: usize,
        rows: &dyn Rows,
    ) -> std::result::Result<(), WeightsError> {
        let tensor = &self.tensor;
        if tensor.dtype() == DType::BF16 {
            send_rows::<bf16>(pool, tensor, first, rows, &|part, out| rows.read_bf16(part, out))
        } else {
            send_rows::<f32>(pool, tensor, first, rows, &|part, out| rows.read(part, out))
        }
    }

    /// A copy in the system's memory.
    pub(super) fn save(&self) -> std::result::Result<Tensor, NoRoom> {
        // On a device that is the processor, moving would copy nothing.
        let tensor = &self.tensor;
        with_room(if tensor.device().is_cpu() { tensor.copy() } else { tensor.to_device(&Device::Cpu) })
    }

    /// Overwrites all rows with a copy of them.
    pub(super) fn put_back(&self, saved: &Tensor) -> std::result::Result<(), NoRoom> {
        let (rows, columns) = done(saved.dims2());
        let part = rows_at_once(columns);
        for first in (0..rows).step_by(part) {
            let numbers = done(saved.narrow(0, first, part.min(rows - first)));
            let numbers = with_room(numbers.to_device(self.tensor.device()))?;
            done(self.tensor.slice_set(&done(numbers.contiguous()), 0, first));
        }
        Ok(())
    }

    /// Reads rows, little-endian in the type of the matrix.
    pub(super) fn read_rows(&self, rows: Range<usize>, out: &mut [u8]) -> Result<()> {
        let numbers = self.tensor.narrow(0, rows.start, rows.len())?.flatten_all()?;
        if numbers.dtype() == DType::BF16 {
            let numbers = numbers.to_vec1::<bf16>()?;
            out.as_chunks_mut::<2>().0.iter_mut().zip(numbers).for_each(|(two, number)| *two = number.to_le_bytes());
        } else {
            WeightDtype::F32.narrow(&numbers.to_vec1::<f32>()?, out);
        }
        Ok(())
    }
}

/// How many rows of so many numbers one thread reads at a time.
fn rows_at_once(columns: usize) -> usize {
    (READ_NUMBERS / columns.max(1)).max(1)
}

/// Appends some rows of weights.
type ReadRows<'a, T> = dyn Fn(Range<usize>, &mut Vec<T>) -> std::result::Result<(), WeightsError> + Sync + 'a;

/// Reads rows on all threads and writes them over those of a tensor, some at a time.
fn send_rows<T: WithDType>(
    pool: &mut Pool,
    tensor: &Tensor,
    first: usize,
    rows: &dyn Rows,
    read: &ReadRows<'_, T>,
) -> std::result::Result<(), WeightsError> {
    let columns = rows.columns();
    let read = |part: Range<usize>| {
        let mut numbers = Vec::new();
        read(part, &mut numbers).map(|()| numbers)
    };
    in_parts(pool, [rows.rows(), columns], &read, |part, numbers| {
        let numbers = with_room(Tensor::from_vec(numbers, (part.len(), columns), tensor.device()))?;
        done(tensor.slice_set(&numbers, 0, first + part.start));
        Ok(())
    })
}

/// Reads rows on all threads, some at a time, and calls `put` with what was read of some of them, one after the other.
fn in_parts<T: Send>(
    pool: &mut Pool,
    [rows, columns]: [usize; 2],
    read: &(dyn Fn(Range<usize>) -> std::result::Result<T, WeightsError> + Sync),
    mut put: impl FnMut(Range<usize>, T) -> std::result::Result<(), WeightsError>,
) -> std::result::Result<(), WeightsError> {
    let part = rows_at_once(columns);
    let parts: Vec<Range<usize>> = (0..rows).step_by(part).map(|start| start..rows.min(start + part)).collect();
    for parts in parts.chunks(pool.threads()) {
        let mut all: Vec<_> = parts.iter().map(|part| (part.clone(), None)).collect();
        pool.for_each_mut(&mut all, &|_, (part, outcome)| *outcome = Some(read(part.clone())));
        for (part, outcome) in all {
            if let Some(outcome) = outcome {
                put(part, outcome?)?;
            }
        }
    }
    Ok(())
}
