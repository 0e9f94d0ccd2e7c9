//! Matrices that stay in the codes of a quantised checkpoint.
//!
//! Before each product, the whole matrix is widened, into memory that all matrices share. Then the same product runs as
//! in the widened model, in the same shape. So all bits are those of the widened model.

#[cfg(test)]
mod tests;

use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor};
use half::bf16;

use super::{
    buffer::TensorKind,
    failure::{done, with_room},
    packing::Packing,
    reading::in_parts,
};
use crate::engine::native::{
    backend::NoRoom,
    cpu::Pool,
    weights::{Code, CodedRows, Codes, Rows, WeightsError},
};

/// A matrix in codes. Rows that were never written are zeros.
#[derive(Debug)]
pub(crate) struct Coded {
    packing: Packing,
    /// The bytes of each row.
    codes: Tensor,
    /// A scale for each group of each row: in f32, or powers of two in bf16.
    scales: Tensor,
}

impl Coded {
    /// A matrix of zeros for rows of this packing.
    pub(super) fn zeros(device: &Device, outputs: usize, rows: &dyn CodedRows) -> std::result::Result<Self, NoRoom> {
        let packing = Packing::of(rows);
        let dtype = match packing.code {
            Code::E4m3 => DType::F32,
            Code::E2m1 => DType::BF16,
        };
        let codes = with_room(Tensor::zeros((outputs, packing.row_bytes()), DType::U8, device))?;
        let scales = with_room(Tensor::zeros((outputs, packing.groups()), dtype, device))?;
        Ok(Self { packing, codes, scales })
    }

    /// Rows and columns.
    pub(super) fn shape(&self) -> (usize, usize) {
        (done(self.codes.dim(0)), self.packing.columns)
    }

    /// Whether these rows are of the kind that the matrix has.
    pub(super) fn takes(&self, rows: &dyn Rows) -> bool {
        rows.coded().is_some_and(|rows| Packing::of(rows) == self.packing)
    }

    /// Overwrites rows from `first` on with all of `rows`, which the matrix [takes](Self::takes).
    pub(super) fn write_rows(
        &self,
        pool: &mut Pool,
        first: usize,
        rows: &dyn Rows,
    ) -> std::result::Result<(), WeightsError> {
        let Some(rows) = rows.coded() else { unreachable!("rows of the matrix's kind") };
        let packing = self.packing;
        let read = |part: Range<usize>| rows.read(part);
        in_parts(pool, [rows.rows(), packing.columns], &read, |part, Codes { codes, scales }| {
            let device = self.codes.device();
            let codes = with_room(Tensor::from_vec(packing.packed(codes), (part.len(), packing.row_bytes()), device))?;
            done(self.codes.slice_set(&codes, 0, first + part.start));
            let scales = match packing.code {
                Code::E4m3 => Tensor::from_vec(scales, (part.len(), packing.groups()), device),
                Code::E2m1 => {
                    let scales = scales.into_iter().map(bf16::from_f32).collect::<Vec<_>>();
                    Tensor::from_vec(scales, (part.len(), packing.groups()), device)
                }
            };
            done(self.scales.slice_set(&with_room(scales)?, 0, first + part.start));
            Ok(())
        })
    }

    /// The rows of these numbers, in codes.
    pub(super) fn select(&self, rows: &Tensor) -> Result<Self> {
        let (codes, scales) = (self.codes.index_select(rows, 0)?, self.scales.index_select(rows, 0)?);
        Ok(Self { packing: self.packing, codes, scales })
    }

    /// Some rows, in codes.
    pub(super) fn narrow(&self, rows: Range<usize>) -> Result<Self> {
        let narrow = |tensor: &Tensor| tensor.narrow(0, rows.start, rows.len());
        Ok(Self { packing: self.packing, codes: narrow(&self.codes)?, scales: narrow(&self.scales)? })
    }

    /// The numbers, in memory of their own.
    pub(super) fn widened(&self, TensorKind { device, dtype, .. }: TensorKind<'_>) -> Result<Tensor> {
        let out = Tensor::zeros(self.shape(), dtype, device)?;
        self.widen(&out)?;
        Ok(out)
    }

    /// Writes the numbers to `out`, rounded to its type.
    pub(super) fn widen(&self, out: &Tensor) -> Result<()> {
        #[cfg(feature = "cuda")]
        if out.device().is_cuda() {
            return super::kernels::widen(&self.codes, &self.scales, self.packing, out);
        }
        let Packing { code, columns, group, is_rounded } = self.packing;
        let (rows, per_byte) = (self.codes.dim(0)?, self.packing.per_byte());
        let of_byte = |byte: u8| (0..per_byte).map(move |place| code.number(byte >> (place * 4)));
        let table: Vec<f32> = (0..=u8::MAX).flat_map(of_byte).collect();
        let table = Tensor::from_vec(table, (usize::from(u8::MAX) + 1, per_byte), out.device())?;
        // As a byte, the greatest index would stand for zeros.
        let bytes = self.codes.flatten_all()?.to_dtype(DType::U32)?;
        let numbers = table.index_select(&bytes, 0)?;
        let numbers = numbers.reshape((rows, self.packing.row_bytes() * per_byte))?.narrow(1, 0, columns)?;
        let groups = (0..columns).map(|column| u32::try_from(column / group).expect("a row has fewer groups"));
        let groups = Tensor::from_vec(groups.collect::<Vec<u32>>(), columns, out.device())?;
        let numbers = (numbers * self.scales.to_dtype(DType::F32)?.index_select(&groups, 1)?)?;
        let numbers = if is_rounded { numbers.to_dtype(DType::BF16)? } else { numbers };
        out.slice_set(&numbers.to_dtype(out.dtype())?, 0, 0)
    }
}
