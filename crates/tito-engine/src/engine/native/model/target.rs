//! Where in a model the numbers of a tensor are.

use crate::engine::native::backend::Backend;

/// A tensor's place in a model.
pub(super) enum Target<'a, B: Backend> {
    /// Rows of a matrix, from this one on.
    Rows(&'a mut B::Matrix, usize),
    /// The numbers of a vector from this one on.
    Numbers(&'a mut B::Vector, usize),
}

/// A vector that not every model has.
pub(super) fn numbers<B: Backend>(vector: &mut Option<B::Vector>, first: usize) -> Option<Target<'_, B>> {
    vector.as_mut().map(|vector| Target::Numbers(vector, first))
}

/// Why every tensor has a target.
pub(super) const PLACED: &str = "a model has a place for every tensor of its shape";
