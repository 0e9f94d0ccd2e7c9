//! The tensors of a GGUF file, under the names and in the order of a Hugging Face directory.
//!
//! Rounded to bf16, the numbers are those of the directory that `tito convert` would write.

use std::ops::Range;

use super::{BlockFormat, BlockRows, Rows, Weights, WeightsError, as_rows};
use crate::gguf::{GgufFile, GgufTensor, GgufTensors};

/// The tensors of a file.
#[derive(Debug)]
pub(crate) struct GgufWeights {
    tensors: GgufTensors,
}

impl GgufWeights {
    /// Opens the tensors of `file`; a missing or an unknown one is an error.
    pub(crate) fn open(file: &GgufFile) -> Result<Self, WeightsError> {
        Ok(Self { tensors: GgufTensors::open(file)? })
    }
}

impl Weights for GgufWeights {
    fn tensors(&self) -> Vec<(&str, &[usize])> {
        self.tensors.shapes().collect()
    }

    fn rows(&self, name: &str) -> Result<Box<dyn Rows + '_>, WeightsError> {
        let tensor = self.tensors.get(name).ok_or_else(|| WeightsError::Missing(vec![name.to_owned()]))?;
        Ok(Box::new(tensor))
    }
}

impl Rows for GgufTensor<'_> {
    fn rows(&self) -> usize {
        as_rows(self.shape()).0
    }

    fn columns(&self) -> usize {
        as_rows(self.shape()).1
    }

    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        // A vector may be many rows in the file, and is one here.
        let parts = GgufTensor::rows(self) / Rows::rows(self);
        Ok(GgufTensor::read(self, rows.start * parts..rows.end * parts, out)?)
    }

    fn read_turned(&self, row: usize, out: &mut Vec<f32>) -> Result<bool, WeightsError> {
        Ok(GgufTensor::read_turned(self, row, out)?)
    }

    fn blocks(&self) -> Option<(BlockFormat, &dyn BlockRows)> {
        let format = BlockFormat::of(GgufTensor::blocks(self)?)?;
        (self.shape().len() > 1).then_some((format, self))
    }
}

impl BlockRows for GgufTensor<'_> {
    fn read(&self, rows: Range<usize>) -> Result<Vec<u8>, WeightsError> {
        Ok(self.read_blocks(rows)?)
    }
}

#[cfg(test)]
mod tests;
