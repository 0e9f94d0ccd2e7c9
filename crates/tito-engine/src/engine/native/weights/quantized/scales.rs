//! What packed numbers are multiplied with: one scale for each block of rows and columns.

use half::{bf16, f16};
use safetensors::Dtype;

use super::{module::Module, numbers::numbers_of};
use crate::engine::native::weights::WeightsError;

/// The type in which a format multiplies, and to which its result is rounded therefore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    /// Products in f32, as they are.
    Single,
    /// Products rounded to bf16.
    Bf16,
    /// Products rounded to f16.
    F16,
}

impl Rounding {
    /// That of a format which multiplies in the type of its scales; `None` where nobody multiplies in that type.
    pub(super) fn of(scales: Dtype) -> Option<Self> {
        match scales {
            Dtype::F32 => Some(Self::Single),
            Dtype::BF16 => Some(Self::Bf16),
            Dtype::F16 => Some(Self::F16),
            _ => None,
        }
    }

    pub(super) fn round(self, number: f32) -> f32 {
        match self {
            Self::Single => number,
            Self::Bf16 => bf16::from_f32(number).to_f32(),
            Self::F16 => f16::from_f32(number).to_f32(),
        }
    }
}

/// The blocks that a matrix is cut into, those at its edges may be smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Rows and columns of the matrix.
    pub(super) matrix: [usize; 2],
    /// Rows and columns of a block; none is 0.
    pub(super) block: [usize; 2],
}

impl Blocks {
    /// How many blocks there are below each other, and beside each other.
    pub(super) fn grid(&self) -> [usize; 2] {
        [self.matrix[0].div_ceil(self.block[0]), self.matrix[1].div_ceil(self.block[1])]
    }

    /// Whether a tensor of this shape has one number for each block.
    pub(super) fn fit(&self, shape: &[usize]) -> bool {
        let [down, across] = self.grid();
        match *shape {
            [] => down == 1 && across == 1,
            [numbers] => (numbers == down && across == 1) || (numbers == across && down == 1),
            [rows, columns] => rows == down && columns == across,
            _ => false,
        }
    }
}

/// A number for each block of a matrix.
pub(super) struct Scales {
    numbers: Vec<f32>,
    blocks: Blocks,
}

impl Scales {
    /// Reads those that a tensor of a module holds.
    pub(super) fn read(module: &Module<'_>, leaf: &str, blocks: Blocks) -> Result<Self, WeightsError> {
        let raw = module.tensor(leaf)?;
        if !blocks.fit(raw.shape) {
            let [down, across] = blocks.grid();
            return Err(module.refusal(&format!(
                "{leaf} has the shape {:?}, and there are {down} by {across} blocks of {:?}",
                raw.shape, blocks.block
            )));
        }
        Ok(Self { numbers: numbers_of(module, leaf)?, blocks })
    }

    /// Those that somebody computed: one for each block, row by row.
    pub(super) fn of(numbers: Vec<f32>, blocks: Blocks) -> Self {
        Self { numbers, blocks }
    }

    /// The columns of a block.
    pub(super) fn width(&self) -> usize {
        self.blocks.block[1]
    }

    /// The scales of a row, one for each of its blocks.
    pub(super) fn of_row(&self, row: usize) -> &[f32] {
        let across = self.blocks.grid()[1];
        &self.numbers[row / self.blocks.block[0] * across..][..across]
    }
}
