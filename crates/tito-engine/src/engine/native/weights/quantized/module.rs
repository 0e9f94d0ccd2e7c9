//! The tensors of one module of a checkpoint, under the names that its format gives them.

use super::super::{SafetensorsFiles, WeightsError, safetensors::RawTensor};

/// A module, such as a projection: all that begins with its name and a dot.
#[derive(Clone, Copy)]
pub(super) struct Module<'a> {
    files: &'a SafetensorsFiles,
    name: &'a str,
}

impl<'a> Module<'a> {
    pub(super) fn new(files: &'a SafetensorsFiles, name: &'a str) -> Self {
        Self { files, name }
    }

    /// Its name.
    pub(super) fn name(&self) -> &'a str {
        self.name
    }

    /// One of its tensors, by the last part of its name.
    pub(super) fn find(&self, leaf: &str) -> Option<RawTensor<'a>> {
        self.files.raw(&self.named(leaf))
    }

    /// A tensor that it must have.
    pub(super) fn tensor(&self, leaf: &str) -> Result<RawTensor<'a>, WeightsError> {
        self.find(leaf).ok_or_else(|| WeightsError::Missing(vec![self.named(leaf)]))
    }

    /// The whole name of one of its tensors.
    pub(super) fn named(&self, leaf: &str) -> String {
        format!("{}.{leaf}", self.name)
    }

    /// Why its weight cannot be widened.
    pub(super) fn refusal(&self, reason: &str) -> WeightsError {
        WeightsError::Packed { name: self.named("weight"), reason: reason.to_owned() }
    }

    /// Rows and columns of a tensor that is a matrix.
    pub(super) fn matrix(&self, leaf: &str) -> Result<[usize; 2], WeightsError> {
        let raw = self.tensor(leaf)?;
        match *raw.shape {
            [rows, columns] => Ok([rows, columns]),
            _ => Err(self.refusal(&format!("{leaf} has the shape {:?} and is no matrix", raw.shape))),
        }
    }
}
