//! Tensors by name, wherever they come from.
//!
//! Owns reading and widening. Refuses to know which tensors a model has, and how a backend keeps them.

mod coded;
mod gguf;
mod given;
mod quantized;
mod rounded;
mod safetensors;
mod shapes;
mod small_floats;
mod table;

use std::{ops::Range, path::PathBuf};

use candle_core::quantized::GgmlDType;
use half::bf16;

use self::small_floats::{E2M1, E4M3, power};

pub(crate) use self::{
    coded::{Code, CodedRows, Codes, SomeRows},
    gguf::GgufWeights,
    given::GivenTensors,
    quantized::{Quantization, holds_codes, may_hold_codes, open_any, open_coded, open_directory},
    rounded::Rounded,
    safetensors::SafetensorsFiles,
    shapes::Shapes,
    table::Table,
};
use crate::{engine::WeightDtype, gguf::GgufError};

/// Why weights could not be read or used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WeightsError {
    /// A file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A directory has no weights in the format that is read.
    #[error("{} has no weights: neither model.safetensors nor model.safetensors.index.json is there; {next}", path.display())]
    Absent {
        /// The directory.
        path: PathBuf,
        /// What to do about it.
        next: &'static str,
    },
    /// A file is not what its name says.
    #[error("{} is not a usable {}: {reason}", path.display(), kind(path))]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A GGUF file cannot be used.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The model has tensors that the files do not hold.
    #[error("the weights lack {}", names(.0))]
    Missing(Vec<String>),
    /// The files hold tensors that the model does not have.
    #[error("the model does not have {}", names(.0))]
    Unknown(Vec<String>),
    /// There is no tensor at all.
    #[error("the weights hold no tensor")]
    Nothing,
    /// A head is not the embeddings, where the model has one matrix for both.
    #[error(
        "tensor {head} has other numbers than {embeddings}, and the model has one matrix for both, because its config.json \
         says `tie_word_embeddings`"
    )]
    Untied {
        /// The head.
        head: String,
        /// The embeddings.
        embeddings: String,
    },
    /// A tensor has another shape than the model gives it.
    #[error("tensor {name} has the shape {found:?}, not {expected:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The model's.
        expected: Vec<usize>,
    },
    /// A tensor's numbers are of a type that is not read.
    #[error("tensor {name} is of type {dtype}; BF16, F16 and F32 are read")]
    Dtype {
        /// The tensor.
        name: String,
        /// Its type.
        dtype: String,
    },
    /// A packed tensor whose numbers cannot be told.
    #[error("tensor {name} cannot be widened: {reason}")]
    Packed {
        /// The tensor.
        name: String,
        /// Why not.
        reason: String,
    },
    /// Weights are quantised in a way that is not read.
    #[error("config.json: `quantization_config` {0}")]
    Quantization(String),
    /// A tensor has more or fewer bytes than its shape and type need.
    #[error("tensor {name} has {found} bytes, not {expected}")]
    Length {
        /// The tensor.
        name: String,
        /// Its bytes.
        found: usize,
        /// What its shape and type need.
        expected: usize,
    },
    /// Numbers are to be changed, and are not of the type in which the tensor is held.
    #[error("tensor {name} is held in {held}, and its numbers are to become {found}")]
    Held {
        /// The tensor.
        name: String,
        /// The type of the changes.
        found: &'static str,
        /// The type in which it is held.
        held: &'static str,
    },
    /// Numbers are to be changed that a tensor does not have, or in another order than its own.
    #[error("the places of the numbers of tensor {0} that change are not ascending places in it")]
    Places(String),
    /// A tensor is given more than once.
    #[error("tensor {0} is given more than once")]
    Repeated(String),
    /// The weights do not fit into the device's memory.
    #[error("the device has no room for the model's weights")]
    NoRoom,
}

/// What a file is to be, by its name.
fn kind(path: &std::path::Path) -> &'static str {
    if path.ends_with("hf_quant_config.json") { "description of weights" } else { "safetensors file" }
}

/// The first few names, and how many there are.
fn names(all: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = all.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

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

    /// The same rows as they are stored, where they are stored as blocks.
    fn blocks(&self) -> Option<&dyn BlockRows> {
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

/// Rows of a GGUF file, each of whole blocks.
pub(crate) trait BlockRows: Sync {
    /// The type of the blocks.
    fn dtype(&self) -> GgmlDType;

    /// The blocks of some rows.
    fn read(&self, rows: Range<usize>) -> Result<Vec<u8>, WeightsError>;
}

/// Tensors by name.
pub(crate) trait Weights {
    /// The names and shapes of all tensors.
    fn tensors(&self) -> Vec<(&str, &[usize])>;

    /// A tensor of those.
    fn rows(&self, name: &str) -> Result<Box<dyn Rows + '_>, WeightsError>;
}

/// Rows and columns of a shape.
pub(crate) fn as_rows(shape: &[usize]) -> (usize, usize) {
    match shape {
        [] => (1, 1),
        [columns] => (1, *columns),
        [rows, rest @ ..] => (*rows, rest.iter().product()),
    }
}
