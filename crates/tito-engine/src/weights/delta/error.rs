//! Why a delta cannot be used.

use std::path::{Path, PathBuf};

use crate::weights::{FileError, header::quoted_excerpt};

/// Why a delta cannot be read or applied.
#[derive(Debug, thiserror::Error)]
pub enum DeltaError {
    /// A file or a directory cannot be read, or is no safetensors file.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file or a directory is not what a trainer writes.
    #[error("{} is not a usable weight delta: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The directory holds all weights of a version instead of what changed.
    #[cfg(test)]
    #[error("{} is a whole checkpoint, not a delta", .0.display())]
    Checkpoint(PathBuf),
    /// The bytes that come out are not those that the trainer had.
    #[error(
        "tensor {name} has the {algorithm} checksum {found} after {} is applied, not {expected}: the delta is damaged, \
         or the bytes before were not those of version {base_version}",
        directory.display()
    )]
    Checksum {
        /// The tensor.
        name: String,
        /// The delta.
        directory: PathBuf,
        /// The version that the delta builds on.
        base_version: u64,
        /// The name of the checksum.
        algorithm: &'static str,
        /// What came out.
        found: String,
        /// What the trainer had.
        expected: String,
    },
    /// The versions that were asked for cannot be reached.
    #[error("{} does not lead from version {from} to version {to}: {reason}", directory.display())]
    Versions {
        /// Where the versions are.
        directory: PathBuf,
        /// The version that is there already.
        from: u64,
        /// The version that is wanted.
        to: u64,
        /// What is missing.
        reason: String,
    },
}

impl DeltaError {
    /// What is wrong with a file, on one line.
    pub(super) fn format(path: &Path, reason: &str) -> Self {
        Self::Format { path: path.to_owned(), reason: quoted_excerpt(reason) }
    }

    /// A file that cannot be read.
    pub(super) fn read(path: &Path) -> impl Fn(std::io::Error) -> Self {
        let error = FileError::read(path);
        move |source| error(source).into()
    }
}
