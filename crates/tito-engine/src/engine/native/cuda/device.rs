//! A device, how it computes, and its products.

use candle_core::{DType, Device, Result, Tensor};

#[cfg(feature = "cuda")]
use super::mixture::SentAddresses;
use super::{
    buffer::{Buffer, TensorKind},
    elementwise,
    matrix::Matrix,
    products,
};
use crate::engine::native::cpu::Processor;

/// How many rows every product has where all are to have one shape: so many that a GPU takes no longer for them than
/// for reading the matrix.
const TILE_ROWS: usize = 128;

/// A device, and how it computes.
pub(crate) struct DeviceBackend {
    pub(super) device: Device,
    /// The type of weights and caches.
    pub(super) dtype: DType,
    /// What reads weights, computes recurrent states and makes tokens of logits.
    pub(super) processor: Processor,
    pub(super) tile: Option<usize>,
    /// Whether weights of quantised checkpoints stay in their codes.
    pub(super) keeps_codes: bool,
    /// The numbers of the matrix in codes that is multiplied with.
    pub(super) widened: Buffer,
    /// The experts that rows go through.
    #[cfg(feature = "cuda")]
    pub(super) chosen: Buffer,
    /// Where the matrices of experts are.
    #[cfg(feature = "cuda")]
    pub(super) sent: SentAddresses,
}

impl DeviceBackend {
    /// A backend whose matrices and caches are of this type, bf16 or f32.
    pub(crate) fn new(device: Device, dtype: DType, processor: Processor) -> Self {
        Self {
            device,
            dtype,
            processor,
            tile: None,
            keeps_codes: false,
            widened: Buffer::default(),
            #[cfg(feature = "cuda")]
            chosen: Buffer::default(),
            #[cfg(feature = "cuda")]
            sent: SentAddresses::default(),
        }
    }

    /// Gives every row the bits that it has alone.
    pub(crate) fn deterministic(self) -> Self {
        Self { tile: Some(TILE_ROWS), ..self }
    }

    /// Leaves weights of quantised checkpoints in their codes: less memory, and the same bits.
    pub(crate) fn keeping_codes(self) -> Self {
        Self { keeps_codes: true, ..self }
    }

    pub(super) fn numbers(&self) -> TensorKind<'_> {
        TensorKind { device: &self.device, dtype: self.dtype }
    }

    pub(super) fn sums(&self) -> TensorKind<'_> {
        TensorKind { device: &self.device, dtype: DType::F32 }
    }

    /// The numbers of a matrix; those of codes are there until the next one's are.
    pub(super) fn numbers_of(&mut self, matrix: &Matrix) -> Result<Tensor> {
        matrix.numbers(TensorKind { device: &self.device, dtype: self.dtype }, &mut self.widened)
    }

    /// `matrix * row (+ bias)` of every row, written to `out` or added to it.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    pub(super) fn multiply(
        &mut self,
        input: &Tensor,
        matrix: &Matrix,
        bias: Option<&Tensor>,
        out: &Tensor,
        accumulate: bool,
    ) -> Result<()> {
        let (begun, matrix) = (accumulate || bias.is_some(), self.numbers_of(matrix)?);
        if let Some(bias) = bias {
            elementwise::put_vector(bias, out, accumulate)?;
        }
        let Some(tile) = self.tile else { return products::multiply(input, &matrix, out, begun) };
        let product = products::multiply_in_tiles(input, &matrix, tile)?;
        let product = if begun { (out + product)? } else { product };
        out.slice_set(&product, 0, 0)
    }
}
