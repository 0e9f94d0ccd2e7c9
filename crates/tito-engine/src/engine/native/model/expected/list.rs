//! The list of tensors as it grows.

use super::super::{
    destinations::{Destination, InDense, InLayer},
    shape::ModelShape,
    tensor::{Tensor, TensorSlice},
};
use crate::engine::native::weights::as_rows;

/// The tensors so far.
pub(super) struct Expected<'a> {
    pub(super) shape: &'a ModelShape,
    pub(super) tensors: Vec<Tensor>,
    /// How the names of the present layer begin.
    pub(super) prefix: String,
    /// Its number.
    pub(super) layer: usize,
}

impl Expected<'_> {
    pub(super) fn push(&mut self, name: &str, shape: &[usize], parts: Vec<TensorSlice>) {
        let name = format!("{}{name}", self.prefix);
        self.tensors.push(Tensor { name, shape: shape.to_vec(), parts });
    }

    /// A tensor that goes to one place.
    pub(super) fn one(&mut self, name: &str, shape: &[usize], place: Destination) {
        self.push(name, shape, vec![TensorSlice { place, rows: 0..as_rows(shape).0, transposed: false }]);
    }

    /// A tensor whose first dimension is the expert.
    pub(super) fn stack(&mut self, name: &str, shape: &[usize], place: InDense, transposed: bool) {
        let part = |expert| TensorSlice {
            place: self.within(InLayer::Expert(expert, place)),
            rows: expert..expert + 1,
            transposed,
        };
        let parts = (0..shape[0]).map(part).collect();
        self.push(name, shape, parts);
    }

    /// The same in slices of its first dimension: so many rows to each place.
    pub(super) fn slices(
        &mut self,
        name: &str,
        shape: &[usize],
        places: impl IntoIterator<Item = (usize, Destination)>,
    ) {
        let mut done = 0;
        let part = |(rows, place)| {
            done += rows;
            TensorSlice { place, rows: done - rows..done, transposed: false }
        };
        let parts = places.into_iter().map(part).collect();
        self.push(name, shape, parts);
    }

    /// A matrix, of which `name` lacks `.weight`.
    pub(super) fn table(&mut self, name: &str, rows: usize, columns: usize, place: Destination) {
        self.one(&format!("{name}.weight"), &[rows, columns], place);
    }

    /// A norm, of which `name` lacks `.weight`.
    pub(super) fn vector(&mut self, name: &str, len: usize, place: Destination) {
        self.one(&format!("{name}.weight"), &[len], place);
    }

    pub(super) fn within(&self, place: InLayer) -> Destination {
        Destination::Layer(self.layer, place)
    }
}
