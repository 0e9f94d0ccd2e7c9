//! Why an adapter could not be read.

use std::{io, path::PathBuf};

use crate::files::Changed;

/// The name of the file of settings.
pub(super) const CONFIG: &str = "adapter_config.json";

/// Why an adapter cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PeftError {
    /// There is no adapter where one was said to be.
    #[error("there is no {CONFIG} in {}", .0.display())]
    NotFound(PathBuf),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody wrote to a file while it was read.
    #[error("{0}; read the adapter again once nobody writes to it")]
    Changed(#[from] Changed),
    /// The settings are not usable.
    #[error("{CONFIG}: {0}")]
    Config(String),
    /// The tensors are not usable.
    #[error("the adapter's tensors are not usable: {0}")]
    Tensors(String),
}
