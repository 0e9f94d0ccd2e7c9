//! Heads that come to a model whose embeddings are its head too.
//!
//! They are not kept. A head that differs from the embeddings would be another model's, so that it is refused: not passed
//! over. In an update the embeddings may come before the head, after it, or not at all, so that a checksum of the head is
//! kept until the update is finished.

use std::sync::Arc;

use super::{checked::Checked, memory::Model, tensor::Tensor, tensors::Tensors, update::READ_NUMBERS};
use crate::engine::{
    WeightDtype,
    native::{
        backend::Backend,
        weights::{Rows, WeightsError},
    },
};

/// A head that came, in the type in which the embeddings are held.
#[derive(Debug)]
pub(crate) struct Head {
    name: String,
    sum: blake3::Hash,
}

impl Head {
    /// Whether this is the same tensor as one that came earlier.
    pub(crate) fn replaces(&self, earlier: &Self) -> bool {
        self.name == earlier.name
    }
}

/// A checksum of rows, rounded to a type.
fn sum_of(rows: &dyn Rows, dtype: WeightDtype) -> Result<blake3::Hash, WeightsError> {
    let mut hasher = blake3::Hasher::new();
    let step = (READ_NUMBERS / rows.columns().max(1)).max(1);
    let (mut numbers, mut bytes) = (Vec::new(), Vec::new());
    for first in (0..rows.rows()).step_by(step) {
        numbers.clear();
        rows.read(first..rows.rows().min(first + step), &mut numbers)?;
        bytes.resize(numbers.len() * dtype.size(), 0);
        dtype.narrow(&numbers, &mut bytes);
        hasher.update(&bytes);
    }
    Ok(hasher.finalize())
}

fn embeddings(tensors: &Tensors) -> Result<&Arc<Tensor>, WeightsError> {
    tensors.tied().ok_or(WeightsError::Nothing)
}

impl<B: Backend> Model<B> {
    /// The heads among tensors whose place the embeddings have.
    pub(crate) fn heads_of(&self, checked: &Checked<'_>) -> Result<Vec<Head>, WeightsError> {
        let (weights, names) = checked.heads();
        let head = |name: &&str| {
            let sum = sum_of(&*weights.rows(name)?, self.backend.dtype())?;
            Ok(Head { name: (*name).to_owned(), sum })
        };
        names.iter().map(head).collect()
    }

    /// Compares heads with the embeddings of the same files, which may be held as something else than numbers.
    pub(super) fn check_read_heads(&self, checked: &Checked<'_>) -> Result<(), WeightsError> {
        let heads = self.heads_of(checked)?;
        if heads.is_empty() {
            return Ok(());
        }
        let (weights, _) = checked.heads();
        let embeddings = embeddings(&self.tensors)?;
        let name = checked.name_of(embeddings).unwrap_or(&embeddings.name);
        let sum = sum_of(&*weights.rows(name)?, self.backend.dtype())?;
        compare(&heads, sum, embeddings)
    }

    /// Compares heads with the embeddings that are held.
    pub(crate) fn check_heads(&mut self, heads: &[Head]) -> Result<(), WeightsError> {
        if heads.is_empty() {
            return Ok(());
        }
        let embeddings = Arc::clone(embeddings(&self.tensors)?);
        let held = self.read_tensor(&embeddings)?;
        compare(heads, blake3::hash(&held), &embeddings)
    }
}

fn compare(heads: &[Head], sum: blake3::Hash, embeddings: &Tensor) -> Result<(), WeightsError> {
    match heads.iter().find(|head| head.sum != sum) {
        Some(head) => Err(WeightsError::Untied { head: head.name.clone(), embeddings: embeddings.name.clone() }),
        None => Ok(()),
    }
}
