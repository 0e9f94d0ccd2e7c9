//! GGUF files: metadata, tokenizer, and conversion to a Hugging Face directory.
//!
//! What a Hugging Face directory says in JSON files is derived here from the metadata, so that a GGUF file and a
//! directory are read by the same code. Refuses to guess: what the metadata does not say for sure is an error.

pub mod convert;
mod error;
#[cfg(any(test, feature = "internals"))]
#[doc(hidden)]
pub mod fixture;
mod header;
mod hugging_face;
mod metadata;
mod pre_tokenizer;
mod stored;
mod tensor_type;
mod tensors;
mod tokenizer;

use std::{
    io::BufReader,
    path::{Path, PathBuf},
};

pub use error::GgufError;
pub use tensors::{GgufTensor, GgufTensors};

use self::{
    header::{Content, HeaderError},
    metadata::Metadata,
};
use crate::files::{self, Watched};

/// No model has a longer context. The angles of positions are exact up to here.
pub const MOST_POSITIONS: usize = 1 << 24;

/// The header of a GGUF file; weights stay on disk.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    /// From before its header was read.
    watched: Watched,
    content: Content,
}

impl GgufFile {
    /// Reads the header, and checks that the file is as long as its tensors need.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        let path = path.as_ref().to_owned();
        let (content, watched) = match read_header(&path) {
            Ok(read) => read,
            Err(Unreadable::Io(source)) => return Err(GgufError::Open { path, source }),
            Err(Unreadable::Header(HeaderError::NotGguf)) => return Err(GgufError::NotGguf { path }),
            Err(Unreadable::Header(HeaderError::Invalid(reason))) => return Err(GgufError::Read { path, reason }),
            Err(Unreadable::Header(HeaderError::Truncated(missing_bytes))) => {
                return Err(GgufError::Truncated { path, missing_bytes });
            }
        };
        let file = Self { path, watched, content };
        match file.metadata().integer("split.count")? {
            Some(parts) if parts > 1 => Err(GgufError::Split { path: file.path, parts }),
            _ => Ok(file),
        }
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
        self.content.tensors.values().map(|info| info.shape.iter().product::<usize>()).sum()
    }

    fn metadata(&self) -> Metadata<'_> {
        Metadata::new(&self.content.metadata)
    }
}

/// Why there is no header.
enum Unreadable {
    Io(std::io::Error),
    Header(HeaderError),
}

fn read_header(path: &Path) -> Result<(Content, Watched), Unreadable> {
    let file = files::open(path).map_err(Unreadable::Io)?;
    let watched = Watched::begin(path, &file).map_err(Unreadable::Io)?;
    let length = file.metadata().map_err(Unreadable::Io)?.len();
    let content = header::read(BufReader::new(file), length).map_err(Unreadable::Header)?;
    Ok((content, watched))
}

#[cfg(test)]
mod tests;
