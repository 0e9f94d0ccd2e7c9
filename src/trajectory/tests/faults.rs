//! A store that cannot be written.

use super::*;
use crate::store::{BatchStore, StoreError};

/// A disk on which nothing can be written for a while.
struct Failing(Arc<MemoryStore>, parking_lot::Mutex<bool>);

impl BatchStore for Failing {
    fn write(&self, gone: &[String], kept: &[(&str, &[u8])]) -> Result<(), StoreError> {
        if *self.1.lock() { Err(StoreError::DiskFull("no space".into())) } else { self.0.write(gone, kept) }
    }

    fn read(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.read(id)
    }

    fn ids(&self) -> Result<Vec<String>, StoreError> {
        self.0.ids()
    }

    fn kept_bytes(&self) -> Result<u64, StoreError> {
        self.0.kept_bytes()
    }

    fn bytes_alone(&self, ids: &[String], new: (&str, &[u8])) -> Result<u64, StoreError> {
        self.0.bytes_alone(ids, new)
    }
}

#[test]
fn what_could_not_be_written_is_not_there_and_what_could_is() {
    let (memory, full) = (a_store(), parking_lot::Mutex::new(false));
    let store = Arc::new(Failing(Arc::clone(&memory), full));
    let trajectories = Trajectories::open(Arc::clone(&store) as Arc<dyn BatchStore>, POLICY).unwrap();
    trajectories.capture(generation(&[1], &[1])).unwrap();
    *store.1.lock() = true;
    let error = trajectories.capture(generation(&[1, 1, 0], &[1])).unwrap_err();
    assert_eq!(error.to_string(), "the disk of the trajectory store is full: no space");
    assert!(trajectories.capture(Generation { session: Some("s".into()), ..generation(&[9], &[1]) }).is_err());
    let id = trajectories.list(&None, &Filter::default(), 9).unwrap().trajectories[0].id.clone();
    assert!(trajectories.delete(&None, &id).is_err());
    assert!(trajectories.list(&None, &Filter::default(), 9).unwrap().trajectories.is_empty());
    *store.1.lock() = false;
    trajectories.capture(generation(&[2], &[1])).unwrap();
    assert_eq!(memory.ids().unwrap().len(), 1, "what was to be deleted is deleted with the next turn");
    assert_eq!(trajectories.index.lock().trees.len(), 1);
}

/// Nothing is left in the store of notes that say nothing any more, and what could not be taken away is still there.
#[test]
fn notes_that_are_taken_away_leave_nothing() {
    let memory = a_store();
    let store = Arc::new(Failing(Arc::clone(&memory), parking_lot::Mutex::new(false)));
    let trajectories = Trajectories::open(Arc::clone(&store) as Arc<dyn BatchStore>, POLICY).unwrap();
    trajectories.capture(generation(&[1], &[1])).unwrap();
    let id = trajectories.list(&None, &Filter::default(), 9).unwrap().trajectories[0].id.clone();
    let bytes = memory.kept_bytes().unwrap();
    let reward = |value| trajectories.note(&None, &id, Note::Reward { turn: None, value });
    assert!(matches!(reward(Some(1.0)), Ok(Noted::Done(_))));
    assert!(memory.kept_bytes().unwrap() > bytes);
    *store.1.lock() = true;
    assert!(reward(None).is_err());
    *store.1.lock() = false;
    trajectories.capture(generation(&[2], &[1])).unwrap();
    let again = Trajectories::open(Arc::clone(&store) as Arc<dyn BatchStore>, POLICY).unwrap();
    let noted = again.list(&None, &Filter::default(), 9).unwrap().trajectories[0].notes.reward;
    assert_eq!(noted, Some(1.0), "nothing was changed");
    assert!(matches!(reward(None), Ok(Noted::Done(_))));
    assert_eq!(memory.ids().unwrap().len(), 2);
    assert!(trajectories.delete(&None, &id).unwrap());
    assert_eq!(memory.ids().unwrap().len(), 1);
}
