//! Why a trajectory could not be stored or read.

use thiserror::Error;

use crate::store::StoreError;

/// Why a turn was not captured, or cannot be read. The texts are for clients: no paths.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CaptureError {
    /// No bound lets this turn in.
    #[error("the trajectory would take {bytes} bytes, and all of them together may take {most} (--capture-size)")]
    TooLarge {
        /// What the trajectory would take.
        bytes: u64,
        /// What all may take.
        most: u64,
    },
    /// Writing needs space that is not there.
    #[error("the disk of the trajectory store is full: {0}")]
    DiskFull(String),
    /// Nothing may be written.
    #[error("the trajectory store cannot be written: {0}")]
    ReadOnly(String),
    /// What is kept is not what was written.
    #[error("the trajectory store is corrupted: {0}")]
    Corrupted(String),
    /// A sequence is as it was sampled, and is not what was asked for.
    #[error("{0}")]
    Unfit(String),
    /// Any other fault.
    #[error("the trajectory store failed: {0}")]
    Failed(String),
}

impl From<StoreError> for CaptureError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::TooLarge { bytes, most } => Self::TooLarge { bytes, most },
            StoreError::DiskFull(reason) => Self::DiskFull(reason),
            StoreError::ReadOnly(reason) => Self::ReadOnly(reason),
            StoreError::Corrupted(reason) => Self::Corrupted(reason),
            StoreError::Failed(reason) => Self::Failed(reason),
        }
    }
}
