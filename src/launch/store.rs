//! Where responses and captured turns are kept.

use std::{sync::Arc, time::Duration};

use anyhow::Context;

use super::{
    progress::Progress,
    settings::{CaptureSettings, Store},
};
use crate::{
    continuity_store::{ContinuityStore, StoreSettings},
    store::{BatchStore, DiskStore, MemoryStore, Purpose, ResponseStore},
    trajectory::Trajectories,
};

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

/// Connects to the store that several servers share, where a flag names one. A server whose store cannot be reached serves.
pub(super) async fn shared(settings: Option<StoreSettings>) -> Option<Arc<ContinuityStore>> {
    Some(Arc::new(ContinuityStore::connect(settings?).await))
}

/// Opens the store of captured turns, whose bounds are kept by the trajectories; one on a disk is checked and read from
/// end to end.
pub(super) fn capture(
    settings: Option<&CaptureSettings>,
    progress: &Progress,
) -> anyhow::Result<Option<Arc<Trajectories>>> {
    let Some(settings) = settings else { return Ok(None) };
    let reading = progress.step("reading the trajectory store");
    let store: Arc<dyn BatchStore> = match &settings.path {
        None => Arc::new(MemoryStore::new(u64::MAX, Duration::MAX)),
        Some(path) => Arc::new(DiskStore::open_for(Purpose::Trajectories, path, u64::MAX)?),
    };
    let opened = Trajectories::open(store, settings.policy).with_context(|| {
        let path = settings.path.as_deref().unwrap_or_else(|| "memory".as_ref());
        format!("the trajectories of {} cannot be read", path.display())
    });
    reading.done();
    Ok(Some(Arc::new(opened?)))
}
