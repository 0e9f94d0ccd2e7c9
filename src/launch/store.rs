//! Where responses are kept.

use std::{sync::Arc, time::Duration};

use super::progress::Progress;
use crate::{
    config::ServeArgs,
    store::{DiskStore, MemoryStore, ResponseStore},
};

/// Room in memory, unless the flags say otherwise.
const MEMORY_BYTES: u64 = 512 << 20;
/// Room on a disk, unless the flags say otherwise.
const DISK_BYTES: u64 = 4 << 30;

/// The store that the flags ask for; one on a disk is checked from end to end.
pub(super) fn responses(args: &ServeArgs, progress: &Progress) -> anyhow::Result<Arc<dyn ResponseStore>> {
    let Some(path) = &args.response_store else {
        let ttl = Duration::from_secs(args.response_store_ttl);
        return Ok(Arc::new(MemoryStore::new(args.response_store_size.unwrap_or(MEMORY_BYTES), ttl)));
    };
    let checking = progress.step("checking the response store");
    let store = DiskStore::open(path, args.response_store_size.unwrap_or(DISK_BYTES))?;
    checking.done();
    Ok(Arc::new(store))
}
