//! GGUF files: metadata, tokenizer, and conversion to a Hugging Face directory.
//!
//! What a Hugging Face directory says in JSON files is derived here from the metadata, so that a GGUF file and a
//! directory are read by the same code. Refuses to guess: what the metadata does not say for sure is an error.

mod architecture;
pub mod convert;
mod error;
#[cfg(test)]
pub(crate) mod fixture;
mod hugging_face;
mod metadata;
mod pre_tokenizer;
mod tensors;
mod tokenizer;

use std::{
    fs::File,
    io::{BufReader, Read, Seek},
    path::{Path, PathBuf},
};

use candle_core::quantized::gguf_file::{Content, TensorInfo};
pub use error::GgufError;
pub(crate) use tensors::{GgufTensor, GgufTensors};

use self::{architecture::Architecture, metadata::Metadata};

/// The first bytes of every GGUF file of the usual, little-endian kind.
const MAGIC: &[u8; 4] = b"GGUF";

/// The header of a GGUF file; weights stay on disk.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    content: Content,
}

impl GgufFile {
    /// Reads the header, and checks that the file is as long as its tensors need.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        let path = path.as_ref().to_owned();
        let (content, len) = match read_header(&path) {
            Ok(Some(header)) => header,
            Ok(None) => return Err(GgufError::NotGguf { path }),
            Err(error) => return Err(error),
        };
        let end = content.tensor_infos.values().map(|info| info.offset.saturating_add(size_bytes(info))).max();
        let end = content.tensor_data_offset.saturating_add(end.unwrap_or(0));
        if content.tensor_infos.is_empty() || end <= len {
            let file = Self { path, content };
            return match file.metadata().integer("split.count")? {
                Some(parts) if parts > 1 => Err(GgufError::Split { path: file.path, parts }),
                _ => Ok(file),
            };
        }
        Err(GgufError::Truncated { path, missing_bytes: end - len })
    }

    /// Returns where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the model's architecture, such as `llama` or `qwen3`.
    pub fn architecture(&self) -> Result<&str, GgufError> {
        self.metadata().required_text("general.architecture")
    }

    /// Returns the number of weights.
    pub fn parameter_count(&self) -> usize {
        self.content.tensor_infos.values().map(|info| info.shape.elem_count()).sum()
    }

    fn metadata(&self) -> Metadata<'_> {
        Metadata::new(&self.content.metadata)
    }
}

/// Reads the header and the file's length in bytes; `None` if it does not begin as a GGUF file.
fn read_header(path: &Path) -> Result<Option<(Content, u64)>, GgufError> {
    let open = |source| GgufError::Open { path: path.to_owned(), source };
    let read = |reason: String| GgufError::Read { path: path.to_owned(), reason };
    let file = File::open(path).map_err(open)?;
    let len = file.metadata().map_err(open)?.len();
    let mut reader = BufReader::new(file);
    let mut magic = [0; MAGIC.len()];
    if reader.read_exact(&mut magic).is_err() || magic != *MAGIC {
        return Ok(None);
    }
    reader.rewind().map_err(|e| read(e.to_string()))?;
    let content = Content::read(&mut reader).map_err(|e| read(e.to_string()))?;
    Ok(Some((content, len)))
}

fn size_bytes(tensor: &TensorInfo) -> u64 {
    // No file is as long as a tensor whose numbers cannot be counted.
    let numbers = tensor.shape.dims().iter().try_fold(1_usize, |product, length| product.checked_mul(*length));
    numbers.map_or(u64::MAX, |numbers| {
        numbers.div_ceil(tensor.ggml_dtype.block_size()).saturating_mul(tensor.ggml_dtype.type_size()) as u64
    })
}

#[cfg(test)]
mod tests;
