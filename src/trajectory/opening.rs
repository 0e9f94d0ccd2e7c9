//! Opens what a store has of earlier processes.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{
    CaptureError, CapturePolicy, Trajectories, images,
    index::{Index, turn_key},
    now,
    record::TurnRecord,
    removed,
    unawaited::Unawaited,
    weight::Weight,
    writing::Writer,
};
use crate::store::BatchStore;

impl Trajectories {
    /// Opens what a store has of earlier processes; all of it is read. What is too old or has no room any more leaves, and a
    /// warning says so.
    ///
    /// # Errors
    ///
    /// If what is there is not what was written.
    pub fn open(store: Arc<dyn BatchStore>, policy: CapturePolicy) -> Result<Self, CaptureError> {
        let CapturePolicy { ttl, bytes, .. } = policy;
        let this = Self::restored(store, policy, |_| {})?;
        let count = || this.index.lock().trees.len();
        let all = count();
        this.expire(now());
        let too_old = all - count();
        let settled = this.settle(None);
        removed::warn_at_start(ttl, bytes, all, too_old, all - too_old - count());
        settled.map(|()| this)
    }

    /// Opens what a store has, for somebody who may read all of it: every trajectory belongs to the owner `None`. Nothing is
    /// deleted by this, however old or large it is.
    ///
    /// # Errors
    ///
    /// If what is there is not what was written.
    pub fn open_to_look(store: Arc<dyn BatchStore>) -> Result<Self, CaptureError> {
        let policy = CapturePolicy { bytes: u64::MAX, ttl: None, texts: true, images: true };
        Self::restored(store, policy, |record| record.generation.owner = None)
    }

    /// Reads all that a store has; `change` is what becomes of each turn before it is entered.
    fn restored(
        store: Arc<dyn BatchStore>,
        policy: CapturePolicy,
        change: impl Fn(&mut TurnRecord),
    ) -> Result<Self, CaptureError> {
        let mut index = Index::new();
        let mut ids = store.ids()?;
        ids.sort();
        let (turns, others): (Vec<_>, Vec<_>) = ids.into_iter().partition(|id| id.starts_with("turn "));
        let (images, notes): (Vec<_>, Vec<_>) = others.into_iter().partition(|id| id.starts_with(images::PREFIX));
        for id in images {
            index.restore_image(&id)?;
        }
        for id in turns {
            let Some(bytes) = store.read(&id)? else { continue };
            let mut record = TurnRecord::decode(&bytes)?;
            change(&mut record);
            if turn_key(record.place.number) != id {
                return Err(CaptureError::Corrupted(format!("a turn of another number is kept as `{id}`")));
            }
            index.restore(&record, Weight::of(&record, &bytes))?;
        }
        index.forget_unused_images();
        for id in notes {
            let number = id.strip_prefix("notes ").and_then(|number| u64::from_str_radix(number, 16).ok());
            let Some(tree) = number else { continue };
            let Some(bytes) = store.read(&id)? else { continue };
            let notes = serde_json::from_slice(&bytes).map_err(|error| CaptureError::Corrupted(error.to_string()))?;
            // Those of a trajectory that is gone leave.
            index.attach(tree, notes, bytes.len());
        }
        let (writer, index) = (Writer::new(Arc::clone(&store))?, Mutex::new(index));
        let (noting, leaving, unawaited) = (Mutex::default(), Mutex::default(), Unawaited::default());
        Ok(Self { store, writer, policy, index, noting, leaving, unawaited })
    }
}
