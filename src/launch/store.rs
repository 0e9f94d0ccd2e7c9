//! Where responses are kept.

use std::sync::Arc;

use super::{progress::Progress, settings::Store};
use crate::store::{DiskStore, MemoryStore, ResponseStore};

/// Opens the store; one on a disk is checked from end to end.
pub(super) fn open(store: &Store, progress: &Progress) -> anyhow::Result<Arc<dyn ResponseStore>> {
    match store {
        Store::Memory { bytes, ttl } => Ok(Arc::new(MemoryStore::new(*bytes, *ttl))),
        Store::Disk { path, bytes } => {
            let checking = progress.step("checking the response store");
            let store = DiskStore::open(path, *bytes)?;
            checking.done();
            Ok(Arc::new(store))
        }
    }
}
