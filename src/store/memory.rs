//! Records in memory, as long as the process runs.
//!
//! Owns the bounds: bytes, each chunk counted once, and age; what was used longest ago goes first. Exact, so that a record
//! is there as long as it can be.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};

use super::{
    BatchStore, RecordState, ResponseStore, StoreError,
    chunks::{ChunkKey, Chunks, ReadChunk, Root, Tree},
};

/// A bounded store without a disk.
pub struct MemoryStore {
    most: u64,
    ttl: Duration,
    clock: Clock,
    kept: Mutex<Kept>,
}

type Clock = Box<dyn Fn() -> Instant + Send + Sync>;

#[derive(Default)]
struct Kept {
    entries: HashMap<Arc<str>, Entry>,
    /// Ids by their last use.
    uses: BTreeMap<u64, Arc<str>>,
    next_use: u64,
    chunks: HashMap<ChunkKey, Chunk>,
    bytes: u64,
}

struct Entry {
    state: RecordState,
    root: Root,
    used: u64,
    used_at: Instant,
}

/// A chunk of one or several records.
struct Chunk {
    holders: u64,
    bytes: Vec<u8>,
}

/// What a record takes besides itself: its id twice, and the links to it.
const ENTRY_BYTES: u64 = 200;

fn weight(id: &str, root: &Root) -> u64 {
    id.len() as u64 + root.bytes.len() as u64 + ENTRY_BYTES
}

/// What a chunk takes.
fn chunk_weight(length: usize) -> u64 {
    size_of::<ChunkKey>() as u64 + length as u64 + ENTRY_BYTES
}

/// What a record takes that shares nothing.
fn tree_weight(id: &str, tree: &Tree) -> u64 {
    weight(id, &tree.root) + tree.chunks().map(|(_, chunk)| chunk_weight(chunk.len())).sum::<u64>()
}

impl MemoryStore {
    /// Keeps at most `most` bytes, and nothing that was not used for `ttl`.
    pub fn new(most: u64, ttl: Duration) -> Self {
        Self::with_clock(most, ttl, Box::new(Instant::now))
    }

    fn with_clock(most: u64, ttl: Duration, clock: Clock) -> Self {
        Self { most, ttl, clock, kept: Mutex::default() }
    }

    /// What is kept, without what is too old, and the time.
    fn fresh(&self) -> Result<(MutexGuard<'_, Kept>, Instant), StoreError> {
        let mut kept = self.kept.lock();
        let now = (self.clock)();
        while kept.oldest().is_some_and(|entry| now.duration_since(entry.used_at) >= self.ttl) {
            kept.forget_oldest()?;
        }
        Ok((kept, now))
    }
}

impl ResponseStore for MemoryStore {
    fn put(&self, id: &str, state: RecordState, record: &[u8]) -> Result<(), StoreError> {
        let tree = Tree::of(record);
        let bytes = tree_weight(id, &tree);
        if bytes > self.most {
            return Err(StoreError::TooLarge { bytes, most: self.most });
        }
        let (mut kept, now) = self.fresh()?;
        kept.put(id, state, tree, now)?;
        while kept.bytes > self.most {
            kept.forget_oldest()?;
        }
        Ok(())
    }

    fn get(&self, id: &str) -> Result<Option<(RecordState, Vec<u8>)>, StoreError> {
        let (mut kept, now) = self.fresh()?;
        let Some(entry) = kept.touch(id, now) else { return Ok(None) };
        let (state, root) = (entry.state, entry.root.clone());
        Ok(Some((state, root.record(&*kept)?)))
    }

    fn delete(&self, id: &str) -> Result<bool, StoreError> {
        self.fresh()?.0.forget(id)
    }
}

impl BatchStore for MemoryStore {
    fn write(&self, gone: &[String], kept: &[(&str, &[u8])]) -> Result<(), StoreError> {
        let kept: Vec<_> = kept.iter().map(|(id, record)| (*id, Tree::of(record))).collect();
        let (mut all, now) = self.fresh()?;
        for id in gone {
            all.forget(id)?;
        }
        kept.into_iter().try_for_each(|(id, tree)| all.put(id, RecordState::Done, tree, now))
    }

    fn read(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.get(id)?.map(|(_, record)| record))
    }

    fn ids(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.fresh()?.0.entries.keys().map(ToString::to_string).collect())
    }

    fn kept_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.fresh()?.0.bytes)
    }

    fn bytes_alone(&self, ids: &[String], (new, record): (&str, &[u8])) -> Result<u64, StoreError> {
        let tree = Tree::of(record);
        let (mut chunks, mut bytes) = (tree.lengths(), weight(new, &tree.root));
        let (kept, _) = self.fresh()?;
        for id in ids.iter().filter(|id| *id != new) {
            if let Some(entry) = kept.entries.get(id.as_str()) {
                bytes += weight(id, &entry.root);
                entry.root.lengths(&*kept, &mut chunks)?;
            }
        }
        Ok(bytes + chunks.values().map(|length| chunk_weight(*length)).sum::<u64>())
    }
}

impl Kept {
    /// Keeps a record in place of the one that has its id.
    fn put(&mut self, id: &str, state: RecordState, tree: Tree, now: Instant) -> Result<(), StoreError> {
        // First the chunks are held, so that those stay which the record before has too.
        tree.hold(self)?;
        self.forget(id)?;
        let id: Arc<str> = id.into();
        let entry = Entry { state, root: tree.root, used: self.next_use, used_at: now };
        self.next_use += 1;
        self.bytes += weight(&id, &entry.root);
        self.uses.insert(entry.used, Arc::clone(&id));
        self.entries.insert(id, entry);
        Ok(())
    }

    fn touch(&mut self, id: &str, now: Instant) -> Option<&Entry> {
        let entry = self.entries.get_mut(id)?;
        let id = self.uses.remove(&entry.used)?;
        (entry.used, entry.used_at) = (self.next_use, now);
        self.next_use += 1;
        self.uses.insert(entry.used, id);
        Some(entry)
    }

    fn oldest(&self) -> Option<&Entry> {
        self.entries.get(self.uses.first_key_value()?.1)
    }

    fn forget_oldest(&mut self) -> Result<(), StoreError> {
        let (_, id) = self.uses.first_key_value().expect("bytes are those of entries");
        let id = Arc::clone(id);
        self.forget(&id).map(drop)
    }

    fn forget(&mut self, id: &str) -> Result<bool, StoreError> {
        let Some(entry) = self.entries.remove(id) else { return Ok(false) };
        self.uses.remove(&entry.used);
        self.bytes -= weight(id, &entry.root);
        entry.root.release(self)?;
        Ok(true)
    }
}

impl Chunks for Kept {
    type Error = StoreError;

    fn holders(&self, key: ChunkKey) -> Result<Option<u64>, StoreError> {
        Ok(self.chunks.get(&key).map(|chunk| chunk.holders))
    }

    fn set_holders(&mut self, key: ChunkKey, holders: u64) -> Result<(), StoreError> {
        self.chunks.get_mut(&key).ok_or_else(missing)?.holders = holders;
        Ok(())
    }

    fn insert(&mut self, key: ChunkKey, bytes: &[u8]) -> Result<(), StoreError> {
        self.bytes += chunk_weight(bytes.len());
        self.chunks.insert(key, Chunk { holders: 1, bytes: bytes.to_vec() });
        Ok(())
    }

    fn remove(&mut self, key: ChunkKey) -> Result<Vec<u8>, StoreError> {
        let chunk = self.chunks.remove(&key).ok_or_else(missing)?;
        self.bytes -= chunk_weight(chunk.bytes.len());
        Ok(chunk.bytes)
    }

    fn broken(&self, what: &str) -> StoreError {
        StoreError::Corrupted(what.to_owned())
    }
}

impl ReadChunk for Kept {
    type Error = StoreError;

    fn read(&self, key: ChunkKey) -> Result<Vec<u8>, StoreError> {
        Ok(self.chunks.get(&key).ok_or_else(missing)?.bytes.clone())
    }

    fn broken(&self, what: &str) -> StoreError {
        StoreError::Corrupted(what.to_owned())
    }
}

fn missing() -> StoreError {
    StoreError::Corrupted("a chunk is missing".to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::tests::{Action, Model, an_action, noise};

    /// A store whose time passes when told.
    fn with_time(most: u64, ttl: Duration) -> (MemoryStore, Arc<Mutex<Instant>>) {
        let now = Arc::new(Mutex::new(Instant::now()));
        let clock = Arc::clone(&now);
        (MemoryStore::with_clock(most, ttl, Box::new(move || *clock.lock())), now)
    }

    proptest! {
        #[test]
        fn memory_does_what_the_model_does(actions in proptest::collection::vec(an_action(), 0..60)) {
            const MOST: u64 = 60_000;
            let store = MemoryStore::new(MOST, Duration::MAX);
            let mut model = Model::new(MOST, |key, bytes| (key + bytes) as u64 + ENTRY_BYTES);
            for action in actions {
                match action {
                    Action::Put(id, state, record) => {
                        prop_assert_eq!(store.put(&id, state, &record).is_ok(), model.put(&id, state, &record));
                    }
                    Action::Get(id) => {
                        prop_assert_eq!(store.get(&id).unwrap(), model.get(&id));
                        model.touch(&id);
                    }
                    Action::Delete(id) => prop_assert_eq!(store.delete(&id).unwrap(), model.delete(&id)),
                }
                prop_assert_eq!(store.kept_bytes().unwrap(), model.total());
            }
            let some: Vec<String> = model.records.keys().take(3).cloned().collect();
            let (new, record) = (some.first().map_or("new", String::as_str), noise(0, 9000));
            prop_assert_eq!(store.bytes_alone(&some, (new, &record)).unwrap(), model.alone(&some, (new, &record)));
            for id in model.records.keys() {
                prop_assert_eq!(store.get(id).unwrap(), model.get(id));
            }
        }
    }

    #[test]
    fn a_record_leaves_when_nobody_used_it_for_the_ttl() {
        let (store, now) = with_time(1 << 20, Duration::from_secs(10));
        store.put("used", RecordState::Done, b"a").unwrap();
        store.put("unused", RecordState::Done, b"b").unwrap();
        *now.lock() += Duration::from_secs(9);
        assert!(store.get("used").unwrap().is_some());
        *now.lock() += Duration::from_secs(1);
        assert!(store.get("unused").unwrap().is_none());
        assert!(store.get("used").unwrap().is_some());
        assert_eq!(store.kept.lock().entries.len(), 1);
    }

    #[test]
    fn what_is_larger_than_the_store_is_refused_and_evicts_nothing() {
        let store = MemoryStore::new(1000, Duration::MAX);
        store.put("a", RecordState::Done, b"a").unwrap();
        let error = store.put("b", RecordState::Done, &[0; 1000]).unwrap_err();
        assert_eq!(error, StoreError::TooLarge { bytes: 1201, most: 1000 });
        assert!(store.get("a").unwrap().is_some());
    }
}
