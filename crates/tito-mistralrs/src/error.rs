//! Why a model could not be loaded.

use std::{io, path::PathBuf};

use super::spec::Dtype;

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file of the model is missing.
    #[error("{} does not exist", .0.display())]
    NotFound(PathBuf),
    /// A file of the model, or a temporary one, could not be read or written.
    #[error("could not read or write {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// mistral.rs would compute something else than the model.
    #[error("this model is not supported: {0}")]
    Unsupported(String),
    /// The device cannot compute in this type.
    #[error("dtype {dtype} is not supported on a CPU, use float32")]
    Dtype {
        /// The type asked for.
        dtype: Dtype,
    },
    /// The model is shorter than asked for.
    #[error("a context of {requested} tokens was asked for, the longest possible is {longest}")]
    ContextTooLong {
        /// Tokens asked for.
        requested: usize,
        /// Tokens possible.
        longest: usize,
    },
    /// No thread to load on.
    #[error("could not start a thread: {0}")]
    Thread(io::Error),
    /// mistral.rs refused or panicked.
    #[error("mistral.rs cannot load this model: {0}")]
    Engine(String),
}
