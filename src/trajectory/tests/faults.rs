//! A store that cannot be written.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::store::{
    BatchStore,
    watched::{WatchedStore, no_space},
};

/// A disk that is full for as long as the flag says so, and what it keeps.
struct Disk {
    full: Arc<AtomicBool>,
    kept: Arc<MemoryStore>,
    store: Arc<dyn BatchStore>,
}

fn a_disk() -> Disk {
    let (full, kept) = (Arc::new(AtomicBool::new(false)), a_store());
    let is_full = Arc::clone(&full);
    let before_write = move |_| if is_full.load(Ordering::Acquire) { Err(no_space()) } else { Ok(()) };
    let store = Arc::new(WatchedStore { kept: Arc::clone(&kept), before_write });
    Disk { full, kept, store }
}

#[test]
fn what_could_not_be_written_is_not_there_and_what_could_is() {
    let Disk { full, kept, store } = a_disk();
    let trajectories = Trajectories::open(store, POLICY).unwrap();
    trajectories.capture(generation(&[1], &[1])).unwrap();
    full.store(true, Ordering::Release);
    let error = trajectories.capture(generation(&[1, 1, 0], &[1])).unwrap_err();
    assert_eq!(error.to_string(), "the disk of the trajectory store is full: no space");
    assert!(trajectories.capture(Generation { session: Some("s".into()), ..generation(&[9], &[1]) }).is_err());
    let id = trajectories.list(&None, &Filter::default(), 9).unwrap().trajectories[0].id.clone();
    assert!(trajectories.delete(&None, &id).is_err());
    assert!(trajectories.list(&None, &Filter::default(), 9).unwrap().trajectories.is_empty());
    full.store(false, Ordering::Release);
    trajectories.capture(generation(&[2], &[1])).unwrap();
    assert_eq!(kept.ids().unwrap().len(), 1, "what was to be deleted is deleted with the next turn");
    assert_eq!(trajectories.index.lock().trees.len(), 1);
}

/// Nothing is left in the store of notes that say nothing any more, and what could not be taken away is still there.
#[test]
fn notes_that_are_taken_away_leave_nothing() {
    let Disk { full, kept, store } = a_disk();
    let trajectories = Trajectories::open(Arc::clone(&store), POLICY).unwrap();
    trajectories.capture(generation(&[1], &[1])).unwrap();
    let id = trajectories.list(&None, &Filter::default(), 9).unwrap().trajectories[0].id.clone();
    let bytes = kept.kept_bytes().unwrap();
    let reward = |value| trajectories.note(&None, &id, Note::Reward { turn: None, value });
    assert!(matches!(reward(Some(1.0)), Ok(Noted::Done(_))));
    assert!(kept.kept_bytes().unwrap() > bytes);
    full.store(true, Ordering::Release);
    assert!(reward(None).is_err());
    full.store(false, Ordering::Release);
    trajectories.capture(generation(&[2], &[1])).unwrap();
    let again = Trajectories::open(store, POLICY).unwrap();
    let noted = again.list(&None, &Filter::default(), 9).unwrap().trajectories[0].notes.reward;
    assert_eq!(noted, Some(1.0), "nothing was changed");
    assert!(matches!(reward(None), Ok(Noted::Done(_))));
    assert_eq!(kept.ids().unwrap().len(), 2);
    assert!(trajectories.delete(&None, &id).unwrap());
    assert_eq!(kept.ids().unwrap().len(), 1);
}

/// A trajectory was deleted while its next turn was being written, and the process ended before that turn left too.
#[test]
fn a_turn_that_a_deleted_trajectory_left_over_leaves_when_the_store_is_opened() {
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    for prompt in [&[1][..], &[1, 1, 0]] {
        trajectories.capture(generation(prompt, &[1])).unwrap();
    }
    let mut keys = store.ids().unwrap();
    keys.sort();
    let [_, last] = &keys[..] else { panic!("two turns, not {keys:?}") };
    let record = BatchStore::read(&*store, last).unwrap().unwrap();
    let id = trajectories.list(&None, &Filter::default(), 9).unwrap().trajectories[0].id.clone();
    assert!(trajectories.delete(&None, &id).unwrap());
    drop(trajectories);
    BatchStore::write(&*store, &[], &[(last, &record)]).unwrap();
    let to_look = Trajectories::open_to_look(Arc::clone(&store) as Arc<dyn BatchStore>).unwrap();
    assert!(to_look.list(&None, &Filter::default(), 9).unwrap().trajectories.is_empty());
    assert_eq!(store.ids().unwrap(), std::slice::from_ref(last), "whoever looks deletes nothing");
    let again = opened(&store, POLICY);
    assert!(again.list(&None, &Filter::default(), 9).unwrap().trajectories.is_empty());
    assert!(store.ids().unwrap().is_empty());
    again.capture(generation(&[1], &[1])).unwrap();
    assert_ne!(store.ids().unwrap(), std::slice::from_ref(last), "its number is not given again");
}

/// A turn is missing of a trajectory that is there: not a remainder of one that was deleted.
#[test]
fn a_trajectory_without_a_turn_in_its_midst_is_not_opened() {
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    for prompt in [&[1][..], &[1, 1, 0], &[1, 1, 0, 1, 0]] {
        trajectories.capture(generation(prompt, &[1])).unwrap();
    }
    drop(trajectories);
    let mut keys = store.ids().unwrap();
    keys.sort();
    BatchStore::write(&*store, &keys[1..2], &[]).unwrap();
    let opened = Trajectories::open(Arc::clone(&store) as Arc<dyn BatchStore>, POLICY);
    let Err(CaptureError::Corrupted(reason)) = opened else { panic!("it was opened") };
    assert!(reason.contains("is missing"), "{reason}");
    assert_eq!(store.ids().unwrap().len(), 2, "nothing was deleted");
}
