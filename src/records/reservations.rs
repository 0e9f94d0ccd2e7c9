//! Reserves the ids of responses that are being generated: nobody else gets them, and only the holder may write the
//! record.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{key::ResponseKey, running::Running};

/// All reserved ids; `None` stands for a response that its client waits for.
type Taken = Mutex<HashMap<ResponseKey, Option<Arc<Running>>>>;

/// The ids that are reserved.
#[derive(Default)]
pub(crate) struct IdReservations {
    taken: Arc<Taken>,
    /// The number of responses that are generated in the background.
    background: Arc<watch::Sender<usize>>,
}

/// A reserved id, which is free again when this is dropped.
pub struct IdReservation {
    key: ResponseKey,
    taken: Arc<Taken>,
    background: Arc<watch::Sender<usize>>,
}

impl IdReservations {
    /// Reserves an id, unless somebody has it.
    pub(crate) fn reserve(&self, key: ResponseKey) -> Option<IdReservation> {
        match self.taken.lock().entry(key.clone()) {
            Entry::Vacant(place) => place.insert(None),
            Entry::Occupied(_) => return None,
        };
        let (taken, background) = (Arc::clone(&self.taken), Arc::clone(&self.background));
        Some(IdReservation { key, taken, background })
    }

    /// Returns the response that is being generated in the background under an id.
    pub(crate) fn running(&self, key: &ResponseKey) -> Option<Arc<Running>> {
        self.taken.lock().get(key).cloned().flatten()
    }

    /// Resolves when nothing is generated in the background.
    pub(crate) fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut background = self.background.subscribe();
        // If the sender is gone, nothing is generated any more.
        async move { drop(background.wait_for(|running| *running == 0).await) }
    }
}

impl IdReservation {
    /// Returns the reserved key.
    pub fn key(&self) -> &ResponseKey {
        &self.key
    }

    /// Makes the response available under its id while it is generated.
    pub fn enter(&self, running: Arc<Running>) {
        let before = self.taken.lock().insert(self.key.clone(), Some(running));
        if before.flatten().is_none() {
            self.background.send_modify(|running| *running += 1);
        }
    }
}

impl Drop for IdReservation {
    fn drop(&mut self) {
        if self.taken.lock().remove(&self.key).flatten().is_some() {
            self.background.send_modify(|running| *running -= 1);
        }
    }
}
