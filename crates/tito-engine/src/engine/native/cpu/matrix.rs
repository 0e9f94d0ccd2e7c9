//! Weight matrices, in numbers, codes or blocks.

use super::kernels::{Blocked, Coded, Operand, Packed, Processor, States, multiply};
use crate::engine::native::weights::Rows;

/// A weight matrix.
#[derive(Debug)]
pub(crate) enum Matrix {
    /// The numbers are in the backend's precision.
    Packed(Packed),
    /// The numbers are in the codes of a quantised checkpoint.
    Coded(Coded),
    /// The numbers are in the blocks of a GGUF file, or nothing was written yet.
    Blocked(Blocked),
}

impl Matrix {
    pub(super) fn outputs(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.outputs(),
            Self::Coded(coded) => coded.outputs(),
            Self::Blocked(blocked) => blocked.outputs(),
        }
    }

    pub(super) fn inputs(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.inputs(),
            Self::Coded(coded) => coded.inputs(),
            Self::Blocked(blocked) => blocked.inputs(),
        }
    }

    /// The bytes that matrices of these rows take where codes and blocks are kept, and all other numbers `each`.
    pub(crate) fn kept_bytes(rows: &dyn Rows, each: u64) -> u64 {
        let kept = Blocked::bytes_of(rows).or_else(|| Coded::bytes_of(rows));
        kept.unwrap_or_else(|| (rows.rows() * rows.columns()) as u64 * each)
    }

    pub(super) fn multiply(&self, processor: &mut Processor, input: &Operand, out: &mut States, accumulate: bool) {
        match self {
            Self::Packed(packed) => multiply(processor, input, packed, out, accumulate),
            Self::Coded(coded) => coded.multiply(processor, input, out, accumulate),
            Self::Blocked(blocked) => blocked.multiply(processor, input, out, accumulate),
        }
    }

    pub(super) fn read_row(&self, index: usize, row: &mut [f32]) {
        match self {
            Self::Packed(packed) => packed.read_row(index, row),
            Self::Coded(coded) => coded.read_row(index, row),
            Self::Blocked(blocked) => blocked.read_row(index, row),
        }
    }
}
