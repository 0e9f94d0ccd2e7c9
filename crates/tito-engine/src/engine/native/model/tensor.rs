//! One tensor of a checkpoint: its name, its shape, and where its parts go.

use std::ops::Range;

use super::destinations::Destination;
use crate::engine::native::weights::WeightsError;

/// How the names of the tensors of all layers begin.
pub(super) const LAYERS: &str = "model.layers.";

/// One of a model's tensors.
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    /// Where it goes: to one place, or a slice of its first dimension to each of several.
    pub(super) parts: Vec<TensorSlice>,
}

/// A slice of a tensor's first dimension, which is a matrix or vector of its own, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TensorSlice {
    pub(super) place: Destination,
    pub(super) rows: Range<usize>,
    /// Whether the slice is inputs by outputs, other than matrices are.
    pub(super) transposed: bool,
}

impl Tensor {
    /// The number of its numbers.
    pub(super) fn numbers(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its one place, unless it is a stack of tensors.
    pub(super) fn place(&self) -> Option<Destination> {
        if let [part] = &self.parts[..] { (!part.transposed).then_some(part.place) } else { None }
    }

    /// Whether it is numbers of vectors, which every backend holds in f32.
    pub(super) fn is_vector(&self) -> bool {
        self.parts.iter().all(|part| part.place.is_vector())
    }

    /// The matrices and vectors that it is a part of.
    pub(super) fn wholes(&self) -> impl Iterator<Item = Destination> {
        self.parts.iter().map(|part| part.place.whole())
    }

    /// Refuses a tensor of this name that has another shape than this one.
    pub(super) fn has_shape(&self, name: &str, shape: &[usize]) -> Result<(), WeightsError> {
        if shape == self.shape {
            return Ok(());
        }
        Err(WeightsError::Shape { name: name.to_owned(), found: shape.to_vec(), expected: self.shape.clone() })
    }
}
