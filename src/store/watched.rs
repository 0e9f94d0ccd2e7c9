//! A store for tests, in memory, of which each write is asked for first.

use std::sync::Arc;

use super::{BatchStore, MemoryStore, StoreError};

/// Keeps what `before_write` lets it; that is given the number of records that are to be kept.
pub(crate) struct WatchedStore<F> {
    pub(crate) kept: Arc<MemoryStore>,
    pub(crate) before_write: F,
}

/// What a disk says that is full.
pub(crate) fn no_space() -> StoreError {
    StoreError::DiskFull("no space".into())
}

impl<F: Fn(usize) -> Result<(), StoreError> + Send + Sync> BatchStore for WatchedStore<F> {
    fn write(&self, gone: &[String], kept: &[(&str, &[u8])]) -> Result<(), StoreError> {
        (self.before_write)(kept.len())?;
        self.kept.write(gone, kept)
    }

    fn read(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.kept.read(id)
    }

    fn ids(&self) -> Result<Vec<String>, StoreError> {
        self.kept.ids()
    }

    fn kept_bytes(&self) -> Result<u64, StoreError> {
        self.kept.kept_bytes()
    }

    fn bytes_alone(&self, ids: &[String], new: (&str, &[u8])) -> Result<u64, StoreError> {
        self.kept.bytes_alone(ids, new)
    }
}
