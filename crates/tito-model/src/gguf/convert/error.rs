//! Why a file was not converted.

use std::{io, path::PathBuf};

use super::super::GgufError;
use crate::tokenizer::TokenizerError;

/// Why a GGUF file was not converted. Nothing is left at the destination.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The source cannot be used, or its model is not one that a directory could describe.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The tokenizer cannot be written.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Something is at the destination already.
    #[error("{} exists and is not an empty directory", path.display())]
    Exists {
        /// The destination.
        path: PathBuf,
    },
    /// The destination cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
}
