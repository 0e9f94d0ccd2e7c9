//! The disk's store against a model, on a disk that does what disks do.

mod files;
mod simulated;

use std::{io::ErrorKind, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::store::tests::{Action, Model, an_action, noise};
use simulated::Disk;

const MOST: u64 = 120_000;

/// As a store returns it.
type Kept = Option<(RecordState, Vec<u8>)>;

/// The store of a new process; `None` where the disk cannot be read.
fn try_store(disk: &Disk) -> Result<DiskStore, DatabaseError> {
    let again = disk.clone();
    Ok(DiskStore::new(Purpose::Responses, disk.open()?, Box::new(move || again.open()), MOST))
}

fn new_disk() -> (Disk, DiskStore) {
    let disk = Disk::default();
    tables::create(&disk.open().unwrap(), Purpose::Responses).unwrap();
    let store = try_store(&disk).unwrap();
    (disk, store)
}

/// Everything that the store has of the ids that occur.
fn contents(store: &DiskStore, ids: &[String]) -> Result<Vec<Kept>, StoreError> {
    ids.iter().map(|id| store.get(id)).collect()
}

fn expected(model: &Model, ids: &[String]) -> Vec<Kept> {
    ids.iter().map(|id| model.get(id)).collect()
}

/// An action, or what happens to machines.
#[derive(Debug, Clone)]
enum Event {
    Act(Action),
    /// Writes fail after so many.
    Fault(usize, bool),
    Heal,
    Restart,
    /// What was not synchronised is lost in part: a bit for each write.
    PowerCut(u64),
}

fn an_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => an_action().prop_map(Event::Act),
        1 => (0..12_usize, any::<bool>()).prop_map(|(working, full)| Event::Fault(working, full)),
        1 => Just(Event::Heal),
        1 => Just(Event::Restart),
        1 => any::<u64>().prop_map(Event::PowerCut),
    ]
}

fn ids_of(events: &[Event]) -> Vec<String> {
    let mut ids: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Act(Action::Put(id, ..) | Action::Get(id) | Action::Delete(id)) => Some(id.clone()),
            _ => None,
        })
        .collect();
    ids.sort();
    ids.dedup();
    ids
}

/// Does the action to both. Where the disk failed, it was done as a whole, or not at all.
fn act(store: &DiskStore, disk: &Disk, model: &mut Model, action: &Action, ids: &[String]) {
    let before = model.clone();
    let failed = match action {
        Action::Put(id, state, record) => {
            let fits = model.put(id, *state, record);
            match store.put(id, *state, record) {
                Ok(()) => assert!(fits),
                Err(StoreError::TooLarge { .. }) => assert!(!fits),
                Err(error) => {
                    assert!(fits, "{error}");
                    assert_clear(&error);
                    return settle(store, disk, model, before, ids);
                }
            }
            return;
        }
        Action::Get(id) => store.get(id).map(|found| assert_eq!(found, model.get(id))),
        Action::Delete(id) => {
            let had = model.delete(id);
            store.delete(id).map(|deleted| assert_eq!(deleted, had))
        }
    };
    if let Err(error) = failed {
        assert_clear(&error);
        settle(store, disk, model, before, ids);
    }
}

/// The first request that meets a fault says what it is, and not that there was one before.
fn assert_clear(error: &StoreError) {
    assert!(matches!(error, StoreError::DiskFull(_) | StoreError::ReadOnly(_)), "{error:?}");
}

fn settle(store: &DiskStore, disk: &Disk, model: &mut Model, before: Model, ids: &[String]) {
    disk.heal();
    let found = contents(store, ids).unwrap();
    if found == expected(&before, ids) {
        *model = before;
    }
    assert_eq!(found, expected(model, ids), "neither done nor left");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_disk_does_what_the_model_does_through_faults_and_restarts(
        events in proptest::collection::vec(an_event(), 0..50)
    ) {
        let (disk, mut store) = new_disk();
        let ids = ids_of(&events);
        let mut model = Model::new(MOST, chunks::weight);
        for event in &events {
            match event {
                Event::Act(action) => act(&store, &disk, &mut model, action, &ids),
                Event::Fault(working, full) => {
                    let kind = if *full { ErrorKind::StorageFull } else { ErrorKind::ReadOnlyFilesystem };
                    disk.fail_after(*working, kind);
                }
                Event::Heal => disk.heal(),
                Event::Restart | Event::PowerCut(_) => {
                    match event {
                        Event::PowerCut(bits) => {
                            let mut bits = *bits;
                            disk.lose_power(|| {
                                bits = bits.rotate_left(1);
                                bits & 1 == 1
                            });
                        }
                        _ => disk.kill(),
                    }
                    store = try_store(&disk).unwrap();
                    model.interrupt();
                }
            }
        }
        disk.heal();
        prop_assert_eq!(contents(&store, &ids).unwrap(), expected(&model, &ids));
        prop_assert_eq!(store.kept_bytes().unwrap(), model.total());
        let new = (ids.first().map_or("new", String::as_str), noise(0, 9000));
        prop_assert_eq!(store.bytes_alone(&ids, (new.0, &new.1)).unwrap(), model.alone(&ids, (new.0, &new.1)));
    }

    #[test]
    fn a_flipped_bit_is_an_error_or_changes_nothing(at in any::<usize>(), bit in 0..8_u8) {
        let (disk, store) = new_disk();
        let record = |id: usize| vec![u8::try_from(id).unwrap(); 700 * id];
        for id in 0..20 {
            store.put(&id.to_string(), RecordState::Done, &record(id)).unwrap();
        }
        drop(store);
        disk.flip(at, bit);
        let Ok(store) = try_store(&disk) else { return Ok(()) };
        for id in 0..20 {
            if let Ok(found) = store.get(&id.to_string()) {
                prop_assert!(found.is_none_or(|found| found == (RecordState::Done, record(id))));
            }
        }
    }
}

/// Whatever write fails, and after whatever loss of power: all of a batch, or nothing of it.
#[test]
fn a_batch_is_written_as_a_whole_or_not_at_all() {
    let ids = ["a", "b", "c", "d"].map(str::to_owned);
    let (mut done, mut left) = (0, 0);
    for working in 0..40 {
        let (disk, store) = new_disk();
        store.write(&[], &[("a", b"1"), ("b", &[2; 5000])]).unwrap();
        disk.fail_after(working, ErrorKind::StorageFull);
        let written = store.write(&ids[..1], &[("b", b"3"), ("c", &[4; 9000]), ("d", b"5")]);
        disk.heal();
        drop(store);
        let mut keeps = working % 2 == 0;
        disk.lose_power(|| {
            keeps = !keeps;
            keeps
        });
        let store = try_store(&disk).unwrap();
        let found: Vec<_> = ids.iter().map(|id| store.read(id).unwrap().map(|record| record.len())).collect();
        let (before, after) = ([Some(1), Some(5000), None, None], [None, Some(1), Some(9000), Some(1)]);
        assert!(found == after || (found == before && written.is_err()), "{working}: {found:?}, {written:?}");
        let mut listed = store.ids().unwrap();
        listed.sort();
        let there = ids.iter().zip(&found).filter(|(_, found)| found.is_some());
        assert_eq!(listed, there.map(|(id, _)| id.clone()).collect::<Vec<_>>());
        if written.is_ok() { done += 1 } else { left += 1 }
    }
    assert!(done > 0 && left > 0, "{done} {left}");
}

#[test]
fn a_full_disk_refuses_records_keeps_those_it_has_and_goes_on_when_there_is_room() {
    let (disk, store) = new_disk();
    store.put("first", RecordState::InProgress, b"first").unwrap();
    disk.fill();
    let refused =
        (0..50).map(|id| store.put(&id.to_string(), RecordState::Done, &noise(id, 9000))).find(Result::is_err);
    let error = refused.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::DiskFull(_)), "{error:?}");
    assert_eq!(store.get("first").unwrap(), Some((RecordState::InProgress, b"first".to_vec())), "this very process's");
    disk.heal();
    store.put("last", RecordState::Done, &[7; 9000]).unwrap();
    assert!(store.get("last").unwrap().is_some());
    assert!(store.get("first").unwrap().is_some());
}

#[test]
fn threads_that_meet_a_fault_all_get_an_answer_and_lose_no_record() {
    let (disk, store) = new_disk();
    let store = Arc::new(store);
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let (store, disk) = (Arc::clone(&store), disk.clone());
            std::thread::spawn(move || {
                let put = |turn: usize| {
                    let id = format!("{thread}-{}", turn % 3);
                    if thread == 0 {
                        disk.heal();
                        if turn.is_multiple_of(3) {
                            disk.fail_after(turn % 7, ErrorKind::StorageFull);
                        }
                    }
                    store.put(&id, RecordState::Done, &turn.to_le_bytes()).is_ok().then_some((id, turn))
                };
                (0..60).filter_map(put).collect::<Vec<_>>()
            })
        })
        .collect();
    let accepted: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    disk.heal();
    for records in accepted {
        for (id, _) in &records {
            let last = records.iter().rfind(|(other, _)| other == id).unwrap().1;
            let (_, found) = store.get(id).unwrap().expect("it was accepted");
            let found = usize::from_le_bytes(found.try_into().unwrap());
            assert!(found >= last, "{id}: {found} is older than {last}, which was accepted last");
        }
    }
}

#[test]
fn a_record_that_was_changed_behind_our_back_is_not_returned() {
    let (disk, store) = new_disk();
    drop(store);
    let database = disk.open().unwrap();
    let transaction = tables::begin_write(&database).unwrap();
    let head = Head { state: RecordState::Done, epoch: 0, bytes: 1, content: tables::content("a", b"x") };
    let mut writing = Writing::open(&transaction, Purpose::Responses).unwrap();
    writing.put("a", &head, &Tree::of(b"y")).unwrap();
    writing.put("b", &Head { bytes: 2, ..head.clone() }, &Tree::of(b"x")).unwrap();
    writing.put("c", &Head { content: tables::content("c", b"x"), ..head }, &Tree::of(b"x")).unwrap();
    drop(writing);
    transaction.commit().unwrap();
    drop(database);
    let store = try_store(&disk).unwrap();
    for id in ["a", "b"] {
        assert!(matches!(store.get(id), Err(StoreError::Corrupted(_))), "{id}");
    }
    assert_eq!(store.get("c").unwrap(), Some((RecordState::Done, b"x".to_vec())));
}

#[test]
fn a_changed_head_is_not_returned() {
    let (disk, store) = new_disk();
    store.put("a", RecordState::InProgress, b"x").unwrap();
    drop(store);
    let mut written = Default::default();
    tables::change_head(&disk.open().unwrap(), "a", |head| written = *head);
    let (age, state, epoch, bytes, checksum) = written;
    for changed in [
        (age + 1, state, epoch, bytes, checksum),
        (age, 1, epoch, bytes, checksum),
        (age, 7, epoch, bytes, checksum),
        (age, state, epoch ^ 1, bytes, checksum),
        (age, state, epoch, bytes + 1, checksum),
        (age, state, epoch, bytes, [0; 32]),
    ] {
        tables::change_head(&disk.open().unwrap(), "a", |head| *head = changed);
        let store = try_store(&disk).unwrap();
        assert!(matches!(store.get("a"), Err(StoreError::Corrupted(_))), "{changed:?}");
    }
    tables::change_head(&disk.open().unwrap(), "a", |head| *head = written);
    assert!(try_store(&disk).unwrap().get("a").unwrap().is_some());
}

#[test]
fn records_of_the_earlier_format_are_adopted_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("responses.redb");
    let store = DiskStore::open(&path, MOST).unwrap();
    store.put("done", RecordState::Done, b"whole").unwrap();
    store.put("begun", RecordState::InProgress, b"half").unwrap();
    drop(store);
    let database = redb::Database::open(&path).unwrap();
    tables::make_earlier(&database, &[("done", b"whole"), ("begun", b"half")]);
    drop(database);
    for _ in 0..2 {
        let store = DiskStore::open(&path, MOST).unwrap();
        assert_eq!(store.get("done").unwrap(), Some((RecordState::Done, b"whole".to_vec())));
        assert_eq!(store.get("begun").unwrap(), Some((RecordState::Interrupted, b"half".to_vec())));
    }
}

#[test]
fn a_smaller_bound_takes_effect_with_the_next_record() {
    let (disk, store) = new_disk();
    for id in 0..10_u64 {
        store.put(&id.to_string(), RecordState::Done, &noise(id, 8000)).unwrap();
    }
    drop(store);
    let again = disk.clone();
    let store = DiskStore::new(Purpose::Responses, disk.open().unwrap(), Box::new(move || again.open()), 30_000);
    store.put("new", RecordState::Done, &noise(10, 8000)).unwrap();
    let there: Vec<_> = (0..10).filter(|id| store.get(&id.to_string()).unwrap().is_some()).collect();
    assert_eq!(there, [9]);
}
