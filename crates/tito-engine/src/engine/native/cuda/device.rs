//! A device, how it computes, and its products.

use std::collections::HashSet;

use candle_core::{DType, Device, Result, Tensor};

use super::{
    buffer::{Allocations, Buffer, TensorKind},
    draw_memory::DrawMemory,
    elementwise,
    inputs::StepInputs,
    landings::Landings,
    matrix::Matrix,
    products,
};
#[cfg(feature = "cuda")]
use super::{graphs::StepGraphs, mixture::SentAddresses};
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
    /// Shapes of matrices, `[outputs, inputs]`, of which is known that a row's place in a tile changes no bit.
    even_shapes: HashSet<(usize, usize)>,
    /// Whether weights of quantised checkpoints stay in their codes.
    pub(super) keeps_codes: bool,
    /// The numbers of the matrix in codes that is multiplied with.
    pub(super) widened: Buffer,
    pub(super) allocations: Allocations,
    /// What the next step is told, while there is none.
    pub(super) inputs: StepInputs,
    /// The ids of a step's tokens.
    pub(super) token_ids: Buffer,
    pub(super) draws: DrawMemory,
    /// Where what comes to the host goes, while nothing does.
    pub(super) landings: Landings,
    /// Whether a step may be begun before the one before it is on the host.
    pub(super) goes_ahead: bool,
    /// How many steps were begun before the ones before them were on the host.
    #[cfg(test)]
    pub(super) steps_ahead: std::sync::Arc<std::sync::atomic::AtomicU64>,
    /// The steps that were recorded.
    #[cfg(feature = "cuda")]
    pub(super) graphs: StepGraphs,
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
        let allocations = Allocations::default();
        Self {
            device,
            dtype,
            processor,
            tile: None,
            even_shapes: HashSet::new(),
            keeps_codes: false,
            widened: Buffer::default(),
            inputs: StepInputs::default(),
            token_ids: Buffer::default(),
            draws: DrawMemory::default(),
            landings: Landings::default(),
            goes_ahead: false,
            #[cfg(test)]
            steps_ahead: std::sync::Arc::default(),
            #[cfg(feature = "cuda")]
            graphs: StepGraphs::default(),
            #[cfg(feature = "cuda")]
            chosen: Buffer::default(),
            #[cfg(feature = "cuda")]
            sent: SentAddresses::new(allocations.clone()),
            allocations,
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

    /// Begins steps before the ones before them are on the host, where that can be.
    pub(crate) fn going_ahead(self) -> Self {
        Self { goes_ahead: true, ..self }
    }

    /// Records steps whose shape comes back, and launches what was recorded.
    pub(crate) fn recording(self) -> Self {
        // Tiles of one shape and numbers of codes take memory in the midst of a step.
        #[cfg(feature = "cuda")]
        if self.device.is_cuda() && self.dtype == DType::BF16 && self.tile.is_none() && !self.keeps_codes {
            super::failure::done(super::kernels::give_workspace(&self.device));
            return Self { graphs: StepGraphs::on(), ..self };
        }
        tracing::warn!(
            "--cuda-graphs has no effect: steps are recorded on a GPU in bfloat16 only, and neither with --deterministic nor \
             with weights that stay quantised"
        );
        self
    }

    pub(super) fn numbers(&self) -> TensorKind<'_> {
        TensorKind { device: &self.device, dtype: self.dtype, allocations: &self.allocations }
    }

    pub(super) fn sums(&self) -> TensorKind<'_> {
        TensorKind { device: &self.device, dtype: DType::F32, allocations: &self.allocations }
    }

    /// The numbers of a matrix; those of codes are there until the next one's are.
    pub(super) fn numbers_of(&mut self, matrix: &Matrix) -> Result<Tensor> {
        let kind = TensorKind { device: &self.device, dtype: self.dtype, allocations: &self.allocations };
        matrix.numbers(kind, &mut self.widened)
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
        self.check_places(&matrix, tile)?;
        let product = products::multiply_in_tiles(input, &matrix, tile)?;
        let product = if begun { (out + product)? } else { product };
        out.slice_set(&product, 0, 0)
    }

    /// Refuses to go on where `--deterministic` would not hold, once for each shape: in the warm-up for those of the text, and
    /// at the first image for those of a tower.
    fn check_places(&mut self, matrix: &Tensor, tile: usize) -> Result<()> {
        let shape = matrix.dims2()?;
        if self.even_shapes.contains(&shape) {
            return Ok(());
        }
        if !products::has_equal_places(matrix, tile)? {
            let (outputs, inputs) = shape;
            candle_core::bail!(
                "--deterministic does not hold on it: a row that is multiplied with a matrix of [{outputs}, {inputs}] has \
                 other bits at another place among {tile} rows"
            );
        }
        self.even_shapes.insert(shape);
        Ok(())
    }
}
