//! Where a GGUF file has the numbers of its tensors, under its own names.

use std::{fs::File, os::unix::fs::FileExt};

use candle_core::quantized::GgmlDType;

use super::{GgufError, GgufFile, tensor_type::TensorType};

/// Where numbers are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored {
    pub(super) dtype: TensorType,
    /// Where the first byte is in the file.
    pub(super) offset: u64,
    /// How many numbers there are.
    pub(super) numbers: usize,
}

impl Stored {
    /// Where the numbers of a tensor are that the file was found to have.
    pub(super) fn of(file: &GgufFile, source: &str) -> Self {
        let info = &file.content.tensors[source];
        let numbers = info.shape.iter().product();
        Self { dtype: info.dtype, offset: file.content.data_offset + info.offset, numbers }
    }

    /// The same from a number on, whose block begins with it.
    pub(super) fn part(self, first: usize, numbers: usize) -> Self {
        Self { offset: self.offset + self.bytes(first) as u64, numbers, ..self }
    }

    /// Bytes of some numbers, a multiple of the type's block.
    pub(super) fn bytes(self, numbers: usize) -> usize {
        numbers / self.dtype.block_size() * self.dtype.type_size()
    }
}

/// Reads a tensor of the file as it is.
pub(super) fn read_vector(file: &GgufFile, source: &str) -> Result<Vec<f32>, GgufError> {
    let error = |reason| GgufError::Tensor { name: source.to_owned(), reason };
    let info = file.content.tensors.get(source).ok_or_else(|| error("the file does not have it".to_owned()))?;
    if info.dtype != TensorType::Ggml(GgmlDType::F32) {
        return Err(error(format!("its type is {:?}, not F32", info.dtype)));
    }
    let stored = Stored::of(file, source);
    let path = file.path().to_owned();
    let opened = File::open(&path).map_err(|source| GgufError::Open { path: path.clone(), source })?;
    let mut bytes = vec![0; stored.bytes(stored.numbers)];
    let read = opened.read_exact_at(&mut bytes, stored.offset);
    read.map_err(|error| GgufError::Read { path, reason: error.to_string() })?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number)).collect())
}
