//! Tensors by name, wherever they come from.
//!
//! Owns reading and widening. Refuses to know which tensors a model has, and how a backend keeps them.

mod blocks;
mod coded;
mod error;
mod gguf;
mod given;
mod quantized;
mod rounded;
mod safetensors;
mod shapes;
mod small_floats;
mod some_rows;
mod table;

use std::ops::Range;

use half::bf16;

use self::small_floats::{E2M1, E4M3, e8m0};

pub(crate) use self::{
    blocks::{BlockFormat, BlockRows, SplitBlock},
    coded::{Code, CodedRows, Codes},
    error::WeightsError,
    gguf::{GgufWeights, check_settings},
    given::GivenTensors,
    quantized::{Quantization, holds_codes, may_hold_codes, method, open_any, open_any_of, open_coded, open_directory},
    rounded::Rounded,
    safetensors::SafetensorsFiles,
    shapes::Shapes,
    some_rows::SomeRows,
    table::Table,
};
use crate::engine::WeightDtype;

/// The same numbers without a change, where they are stored in bf16.
pub(crate) fn as_bf16(dtype: WeightDtype, bytes: &[u8], out: &mut Vec<bf16>) {
    if dtype == WeightDtype::Bf16 {
        out.extend(bytes.as_chunks::<2>().0.iter().map(|two| bf16::from_le_bytes(*two)));
        return;
    }
    let mut wide = Vec::new();
    dtype.widen(bytes, &mut wide);
    out.extend(wide.into_iter().map(bf16::from_f32));
}

/// A tensor as rows: its first dimension, of all the others. A vector is one row.
pub(crate) trait Rows: Sync {
    /// How many rows there are.
    fn rows(&self) -> usize;

    /// Numbers of a row.
    fn columns(&self) -> usize;

    /// Appends some rows to `out`.
    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError>;

    /// Appends some rows to `out`, rounded to bf16 where they are stored in more.
    fn read_bf16(&self, rows: Range<usize>, out: &mut Vec<bf16>) -> Result<(), WeightsError> {
        let mut wide = Vec::new();
        self.read(rows, &mut wide)?;
        out.extend(wide.into_iter().map(bf16::from_f32));
        Ok(())
    }

    /// Appends a row that is a table, turned, where it is stored turned and so is read without turning it twice; whether it
    /// was appended.
    fn read_turned(&self, _row: usize, _out: &mut Vec<f32>) -> Result<bool, WeightsError> {
        Ok(false)
    }

    /// The same rows as they are stored, where they are stored as numbers.
    fn stored(&self) -> Option<&dyn StoredRows> {
        None
    }

    /// The same rows as they are stored, where they are stored as blocks of a known format. Their numbers are those of the
    /// blocks, rounded to bf16.
    fn blocks(&self) -> Option<(BlockFormat, &dyn BlockRows)> {
        None
    }

    /// The same numbers as codes and scales, where they are stored as such: outputs by inputs, also where these rows are
    /// stacks of inputs by outputs.
    fn coded(&self) -> Option<&dyn CodedRows> {
        None
    }
}

/// Rows of numbers, little-endian, one row after the other.
pub(crate) trait StoredRows: Sync {
    /// The type of the numbers.
    fn dtype(&self) -> WeightDtype;

    /// The bytes of some rows; `buffer` is for those that are not in memory yet.
    fn bytes<'a>(&'a self, rows: Range<usize>, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], WeightsError>;
}

/// Tensors by name.
pub(crate) trait Weights {
    /// The names and shapes of all tensors.
    fn tensors(&self) -> Vec<(&str, &[usize])>;

    /// A tensor of those.
    fn rows(&self, name: &str) -> Result<Box<dyn Rows + '_>, WeightsError>;

    /// Whether a tensor says nothing to a model that has none of that name: zeros that the writers of a format give every
    /// module.
    fn is_filler(&self, _name: &str) -> bool {
        false
    }

    /// Refuses files that somebody wrote to since they were opened: what was read of them may be of two versions. To be asked
    /// once all that counts was read, and before it is used.
    fn check_unchanged(&self) -> Result<(), WeightsError>;
}

/// Rows and columns of a shape.
pub(crate) fn as_rows(shape: &[usize]) -> (usize, usize) {
    match shape {
        [] => (1, 1),
        [columns] => (1, *columns),
        [rows, rest @ ..] => (*rows, rest.iter().product()),
    }
}
