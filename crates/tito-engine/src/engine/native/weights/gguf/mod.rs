//! The tensors of a GGUF file, under the names and in the order of a Hugging Face directory.
//!
//! Rounded to bf16, the numbers are those of the directory that `tito convert` would write.

use std::{collections::BTreeSet, ops::Range};

use serde_json::{Map, Value};

use super::{BlockFormat, BlockRows, Code, CodedRows, Codes, Rows, Weights, WeightsError, as_rows, e8m0};
use crate::gguf::{GgufFile, GgufTensor, GgufTensors};

/// The tensors of a file.
#[derive(Debug)]
pub(crate) struct GgufWeights {
    tensors: GgufTensors,
    /// Whether MXFP4 is given as codes, which a power that f32 does not hold is an error for.
    gives_codes: bool,
}

impl GgufWeights {
    /// Opens the tensors of `file`; a missing or an unknown one is an error.
    pub(crate) fn open(file: &GgufFile) -> Result<Self, WeightsError> {
        Ok(Self { tensors: GgufTensors::open(file)?, gives_codes: false })
    }

    /// The same with codes of MXFP4, for whoever keeps them.
    pub(crate) fn giving_codes(self) -> Self {
        Self { gives_codes: true, ..self }
    }
}

impl Weights for GgufWeights {
    fn tensors(&self) -> Vec<(&str, &[usize])> {
        self.tensors.shapes().collect()
    }

    fn rows(&self, name: &str) -> Result<Box<dyn Rows + '_>, WeightsError> {
        let tensor = self.tensors.get(name).ok_or_else(|| WeightsError::Missing(vec![name.to_owned()]))?;
        match tensor.codes().filter(|_| self.gives_codes) {
            Some(shape) => Ok(Box::new(InCodes { name: name.to_owned(), tensor, shape })),
            None => Ok(Box::new(tensor)),
        }
    }

    fn check_unchanged(&self) -> Result<(), WeightsError> {
        Ok(self.tensors.check_unchanged()?)
    }
}

/// Refuses a file whose model is not computed as one with this config.json: its weights would be with other settings than
/// their own.
pub(crate) fn check_settings(file: &GgufFile, config: &Map<String, Value>) -> Result<(), WeightsError> {
    let own = file.model_config()?;
    let counts = |name: &str| match name {
        // How texts begin and end is no part of what is computed.
        "bos_token_id" | "eos_token_id" => false,
        // Where the embeddings are the head, a head that comes is compared with them.
        TIED => config.get(TIED) == Some(&Value::Bool(false)),
        _ => true,
    };
    let names: BTreeSet<&String> = own.keys().chain(config.keys()).filter(|name| counts(name)).collect();
    let others: Vec<String> = names.into_iter().filter(|name| own.get(*name) != config.get(*name)).cloned().collect();
    if others.is_empty() { Ok(()) } else { Err(WeightsError::OtherSettings(others)) }
}

const TIED: &str = "tie_word_embeddings";

/// A tensor in MXFP4.
struct InCodes<'a> {
    name: String,
    tensor: GgufTensor<'a>,
    /// Rows and columns of its codes.
    shape: (usize, usize),
}

/// How many numbers share a power.
const GROUP: usize = 32;

impl Rows for InCodes<'_> {
    fn rows(&self) -> usize {
        Rows::rows(&self.tensor)
    }

    fn columns(&self) -> usize {
        Rows::columns(&self.tensor)
    }

    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        Rows::read(&self.tensor, rows, out)
    }

    fn read_turned(&self, row: usize, out: &mut Vec<f32>) -> Result<bool, WeightsError> {
        Rows::read_turned(&self.tensor, row, out)
    }

    fn coded(&self) -> Option<&dyn CodedRows> {
        Some(self)
    }
}

impl CodedRows for InCodes<'_> {
    fn code(&self) -> Code {
        Code::E2m1
    }

    fn rows(&self) -> usize {
        self.shape.0
    }

    fn columns(&self) -> usize {
        self.shape.1
    }

    fn group(&self) -> usize {
        GROUP
    }

    /// bf16 holds every product.
    fn is_rounded(&self) -> bool {
        false
    }

    fn read(&self, rows: Range<usize>) -> Result<Codes, WeightsError> {
        let (codes, powers) = self.tensor.read_codes(rows)?;
        if powers.contains(&u8::MAX) {
            let reason =
                "a power of two of its MXFP4 is too large to be kept; `--gguf-weights widened` takes it".to_owned();
            return Err(WeightsError::Packed { name: self.name.clone(), reason });
        }
        Ok(Codes { codes, scales: powers.into_iter().map(e8m0).collect() })
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
