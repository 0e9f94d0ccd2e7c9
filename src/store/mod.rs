//! Records that are found by their ids: stored responses, and captured turns.
//!
//! Owns where records are kept, for how long, and what is said when they cannot be. Refuses to know what a record says.
//! To a store, a record is bytes and a state: whether its answer is complete.

mod chunks;
mod disk;
mod memory;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod watched;

use thiserror::Error;

#[cfg(any(test, feature = "internals"))]
pub use disk::OpenError;
pub use disk::{DiskStore, ReadOnlyStore};
pub use memory::MemoryStore;

/// What a store keeps, which its file and its errors say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Responses that can be asked for again.
    Responses,
    /// Turns that were captured.
    Trajectories,
}

impl Purpose {
    /// What the store is called.
    fn name(self) -> &'static str {
        match self {
            Self::Responses => "response store",
            Self::Trajectories => "trajectory store",
        }
    }
}

impl std::fmt::Display for Purpose {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

/// How far the answer of a record has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordState {
    /// This process is generating it.
    InProgress,
    /// The answer is whole, and does not change any more.
    Done,
    /// A process that is gone was generating it; the bytes are what it wrote last.
    Interrupted,
}

/// Keeps records by their ids. What `put` has accepted is found by every later `get`, unless it was deleted or had to
/// leave to keep the store's bounds, the oldest first.
///
/// What records have in common is kept once, wherever it stands in them.
///
/// Methods block, on a disk for as long as it takes to write to it: call them where a thread may wait.
pub trait ResponseStore: Send + Sync {
    /// Keeps a record; one with the same id is replaced, and becomes the newest. Where this fails, an
    /// earlier record of the id is still there, or the new one is: never half of one.
    fn put(&self, id: &str, state: RecordState, record: &[u8]) -> Result<(), StoreError>;

    /// The record of an id.
    fn get(&self, id: &str) -> Result<Option<(RecordState, Vec<u8>)>, StoreError>;

    /// Forgets a record; whether there was one.
    fn delete(&self, id: &str) -> Result<bool, StoreError>;
}

/// Keeps records of which some leave when others come, all at once: either the whole batch is done, or nothing of it.
/// Whoever uses it keeps the bounds.
///
/// Methods block, like those of [`ResponseStore`].
pub trait BatchStore: Send + Sync {
    /// Forgets the records in `gone`, those that are not there too, and keeps those in `kept`; one with the same id is
    /// replaced.
    fn write(&self, gone: &[String], kept: &[(&str, &[u8])]) -> Result<(), StoreError>;

    /// The record of an id.
    fn read(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// The ids of all records, in no order.
    fn ids(&self) -> Result<Vec<String>, StoreError>;

    /// What all records take, what they have in common counted once.
    fn kept_bytes(&self) -> Result<u64, StoreError>;

    /// What the records of `ids` that are there would take if nothing else was kept but `new`, which is in the place of
    /// one with its id.
    fn bytes_alone(&self, ids: &[String], new: (&str, &[u8])) -> Result<u64, StoreError>;
}

/// Why a store did not do what it was asked for. The texts are for clients: no paths.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// No bound lets this record in.
    #[error("the response takes {bytes} bytes, and the store holds {most} (--response-store-size)")]
    TooLarge {
        /// What the record would take.
        bytes: u64,
        /// What the whole store may take.
        most: u64,
    },
    /// Writing needs space that is not there.
    #[error("the disk of the response store is full: {0}")]
    DiskFull(String),
    /// Nothing may be written.
    #[error("the response store cannot be written: {0}")]
    ReadOnly(String),
    /// What is on the disk is not what was written.
    #[error("the response store is corrupted: {0}")]
    Corrupted(String),
    /// Any other fault.
    #[error("the response store failed: {0}")]
    Failed(String),
}
