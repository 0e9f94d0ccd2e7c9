//! Weight matrices, in numbers, codes or blocks.

use super::kernels::{Coded, Operand, Packed, Processor, Quantized, States, multiply};

/// A weight matrix.
#[derive(Debug)]
pub(crate) enum Matrix {
    /// The numbers are in the backend's precision.
    Packed(Packed),
    /// The numbers are in the codes of a quantised checkpoint.
    Coded(Coded),
    /// The numbers are in the blocks of a GGUF file, or nothing was written yet.
    Quantized(Quantized),
}

impl Matrix {
    pub(super) fn outputs(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.outputs(),
            Self::Coded(coded) => coded.outputs(),
            Self::Quantized(quantized) => quantized.outputs(),
        }
    }

    pub(super) fn inputs(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.inputs(),
            Self::Coded(coded) => coded.inputs(),
            Self::Quantized(quantized) => quantized.inputs(),
        }
    }

    pub(super) fn multiply(&self, processor: &mut Processor, input: &Operand, out: &mut States, accumulate: bool) {
        match self {
            Self::Packed(packed) => multiply(processor, input, packed, out, accumulate),
            Self::Coded(coded) => coded.multiply(processor, input, out, accumulate),
            Self::Quantized(quantized) => quantized.multiply(processor, input, out, accumulate),
        }
    }

    pub(super) fn read_row(&self, index: usize, row: &mut [f32]) {
        match self {
            Self::Packed(packed) => packed.read_row(index, row),
            Self::Coded(coded) => coded.read_row(index, row),
            Self::Quantized(quantized) => quantized.read_row(index, row),
        }
    }
}
