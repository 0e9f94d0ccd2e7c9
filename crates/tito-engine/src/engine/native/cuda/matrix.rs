//! Weight matrices, which are overwritten in place, or stay in codes.
//!
//! Owns how numbers come to a device and back. Refuses arithmetic.

use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor, WithDType};
use half::bf16;

use super::{
    buffer::{Buffer, TensorKind},
    coded::Coded,
    failure::{done, with_room},
    host,
    reading::{in_parts, rows_at_once},
};
use crate::engine::{
    WeightDtype,
    native::{
        backend::NoRoom,
        cpu::Pool,
        weights::{Rows, WeightsError},
    },
};

/// Why there is no copy of such a matrix.
const QUANTIZED: &str = "weights that stay quantised are never replaced";

/// A weight matrix, `[outputs, inputs]`.
#[derive(Debug)]
pub(crate) enum Matrix {
    /// The numbers are in the backend's type.
    Plain(Tensor),
    /// The numbers are in the codes of a quantised checkpoint.
    Coded(Coded),
    /// Nothing was written yet: the first rows decide what it is.
    Unwritten {
        /// How many rows it has.
        outputs: usize,
        /// Numbers of a row.
        inputs: usize,
    },
}

impl Matrix {
    pub(super) fn zeros(
        TensorKind { device, dtype, allocations }: TensorKind<'_>,
        outputs: usize,
        inputs: usize,
    ) -> std::result::Result<Self, NoRoom> {
        allocations.count();
        with_room(Tensor::zeros((outputs, inputs), dtype, device)).map(Self::Plain)
    }

    /// Rows and columns.
    pub(super) fn shape(&self) -> (usize, usize) {
        match self {
            Self::Plain(tensor) => done(tensor.dims2()),
            Self::Coded(coded) => coded.shape(),
            Self::Unwritten { outputs, inputs } => (*outputs, *inputs),
        }
    }

    /// All numbers. Those of codes are written into `room`, which is as large as the greatest matrix in codes.
    pub(super) fn numbers(&self, kind: TensorKind<'_>, room: &mut Buffer) -> Result<Tensor> {
        match self {
            Self::Plain(tensor) => Ok(tensor.clone()),
            Self::Coded(coded) => {
                let (outputs, inputs) = coded.shape();
                let numbers = room.reshape(kind, outputs, inputs)?;
                coded.widen(numbers)?;
                Ok(numbers.clone())
            }
            Self::Unwritten { outputs, inputs } => Tensor::zeros((*outputs, *inputs), kind.dtype, kind.device),
        }
    }

    /// The rows of these numbers.
    pub(super) fn select(&self, rows: &Tensor, kind: TensorKind<'_>) -> Result<Tensor> {
        match self {
            Self::Plain(tensor) => tensor.index_select(rows, 0),
            Self::Coded(coded) => coded.select(rows)?.widened(kind),
            Self::Unwritten { inputs, .. } => Tensor::zeros((rows.dim(0)?, *inputs), kind.dtype, kind.device),
        }
    }

    /// The bytes of a copy; there is none of codes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Plain(tensor) => (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64,
            Self::Coded(_) | Self::Unwritten { .. } => 0,
        }
    }

    /// Makes of a matrix that was not written yet what such rows need, and of codes numbers where these rows are others.
    pub(super) fn prepare(
        &mut self,
        kind: TensorKind<'_>,
        rows: &dyn Rows,
        room: &mut Buffer,
    ) -> std::result::Result<(), NoRoom> {
        match self {
            Self::Unwritten { outputs, inputs } => {
                let (outputs, inputs) = (*outputs, *inputs);
                let Some(coded) = rows.coded() else {
                    *self = Self::zeros(kind, outputs, inputs)?;
                    return Ok(());
                };
                *self = Self::Coded(Coded::zeros(kind.device, outputs, coded)?);
                // What it is widened into is there before anybody counts what is left of the memory.
                with_room(room.reshape(kind, outputs, inputs))?;
            }
            Self::Coded(coded) if !coded.takes(rows) => {
                kind.allocations.count();
                *self = Self::Plain(with_room(coded.widened(kind))?);
            }
            Self::Plain(_) | Self::Coded(_) => {}
        }
        Ok(())
    }

    /// Overwrites rows from `first` on with all of `rows`, for which the matrix was [prepared](Self::prepare).
    pub(super) fn write_rows(
        &self,
        pool: &mut Pool,
        first: usize,
        rows: &dyn Rows,
    ) -> std::result::Result<(), WeightsError> {
        match self {
            Self::Plain(tensor) if tensor.dtype() == DType::BF16 => {
                send_rows::<bf16>(pool, tensor, first, rows, &|part, out| rows.read_bf16(part, out))
            }
            Self::Plain(tensor) => send_rows::<f32>(pool, tensor, first, rows, &|part, out| rows.read(part, out)),
            Self::Coded(coded) => coded.write_rows(pool, first, rows),
            Self::Unwritten { .. } => unreachable!("a matrix is prepared before it is written"),
        }
    }

    /// A copy in the system's memory.
    pub(super) fn save(&self) -> std::result::Result<Tensor, NoRoom> {
        let Self::Plain(tensor) = self else { unreachable!("{QUANTIZED}") };
        // On a device that is the processor, moving would copy nothing.
        let saved = with_room(if tensor.device().is_cpu() { tensor.copy() } else { tensor.to_device(&Device::Cpu) })?;
        #[cfg(feature = "cuda")]
        done(super::kernels::wait_for_copies(tensor));
        Ok(saved)
    }

    /// Overwrites all rows with a copy of them.
    pub(super) fn put_back(&self, saved: &Tensor) -> std::result::Result<(), NoRoom> {
        let Self::Plain(tensor) = self else { unreachable!("{QUANTIZED}") };
        let (rows, columns) = done(saved.dims2());
        let part = rows_at_once(columns);
        for first in (0..rows).step_by(part) {
            let numbers = done(saved.narrow(0, first, part.min(rows - first)));
            let numbers = with_room(numbers.to_device(tensor.device()))?;
            done(tensor.slice_set(&done(numbers.contiguous()), 0, first));
        }
        Ok(())
    }

    /// Reads rows, little-endian in the type of the backend.
    pub(super) fn read_rows(&self, rows: Range<usize>, kind: TensorKind<'_>, out: &mut [u8]) -> Result<()> {
        let numbers = match self {
            Self::Plain(tensor) => tensor.narrow(0, rows.start, rows.len())?,
            Self::Coded(coded) => coded.narrow(rows)?.widened(kind)?,
            Self::Unwritten { inputs, .. } => Tensor::zeros((rows.len(), *inputs), kind.dtype, kind.device)?,
        };
        if numbers.dtype() == DType::BF16 {
            let numbers: Vec<bf16> = host::numbers_of(&numbers)?;
            out.as_chunks_mut::<2>().0.iter_mut().zip(numbers).for_each(|(two, number)| *two = number.to_le_bytes());
        } else {
            WeightDtype::F32.narrow(&host::numbers_of::<f32>(&numbers)?, out);
        }
        Ok(())
    }
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
