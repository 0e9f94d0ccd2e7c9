//! Many turns in one transaction: those that wait while another one is written are written together.
//!
//! A disk takes milliseconds for a transaction, however much is in it, and one comes after the other.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use crate::store::{BatchStore, StoreError};

/// Writes to a store for many threads at once.
pub(super) struct Writer {
    store: Arc<dyn BatchStore>,
    /// What nobody writes yet.
    waiting: Mutex<Vec<Arc<Job>>>,
    /// Held by the thread that writes.
    turn: Mutex<()>,
    /// What all records took after the last write.
    kept: AtomicU64,
}

/// What one thread wants written.
struct Job {
    gone: Vec<String>,
    kept: Option<(String, Vec<u8>)>,
    /// Set when somebody has written it, or failed to.
    done: Mutex<Option<Result<(), StoreError>>>,
}

impl Writer {
    pub(super) fn new(store: Arc<dyn BatchStore>) -> Result<Self, StoreError> {
        let kept = store.kept_bytes()?.into();
        Ok(Self { store, waiting: Mutex::default(), turn: Mutex::default(), kept })
    }

    /// What all records take in the store, after the last write that has ended.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept.load(Ordering::Acquire)
    }

    /// Forgets records and keeps one; when this returns, the store has done both, or neither.
    pub(super) fn write(&self, gone: Vec<String>, kept: Option<(String, Vec<u8>)>) -> Result<(), StoreError> {
        let job = Arc::new(Job { gone, kept, done: Mutex::default() });
        self.waiting.lock().push(Arc::clone(&job));
        let _turn = self.turn.lock();
        if let Some(done) = job.done.lock().take() {
            return done;
        }
        let jobs = std::mem::take(&mut *self.waiting.lock());
        let gone: Vec<String> = jobs.iter().flat_map(|job| job.gone.iter().cloned()).collect();
        let kept = jobs.iter().filter_map(|job| job.kept.as_ref());
        let kept: Vec<(&str, &[u8])> = kept.map(|(id, record)| (id.as_str(), record.as_slice())).collect();
        let done = self.store.write(&gone, &kept);
        // A store that cannot say it fails with the next write too.
        if let Ok(bytes) = self.store.kept_bytes() {
            self.kept.store(bytes, Ordering::Release);
        }
        for other in jobs {
            *other.done.lock() = Some(done.clone());
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicUsize, thread, time::Duration};

    use super::*;
    use crate::store::MemoryStore;

    /// A disk whose first write takes until others wait.
    struct Slow {
        kept: MemoryStore,
        writes: AtomicUsize,
        writer: Mutex<Option<Arc<Writer>>>,
        fails: bool,
    }

    const THREADS: usize = 8;

    impl BatchStore for Slow {
        fn write(&self, gone: &[String], kept: &[(&str, &[u8])]) -> Result<(), StoreError> {
            let writer = self.writer.lock().clone().expect("it is set before anybody writes");
            if self.writes.fetch_add(1, Ordering::AcqRel) == 0 {
                while writer.waiting.lock().len() < THREADS - kept.len() {
                    thread::yield_now();
                }
            }
            if self.fails { Err(StoreError::DiskFull("no space".into())) } else { self.kept.write(gone, kept) }
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

    fn written(fails: bool) -> (Arc<Slow>, Vec<Result<(), StoreError>>) {
        let kept = MemoryStore::new(u64::MAX, Duration::MAX);
        let slow = Arc::new(Slow { kept, writes: AtomicUsize::new(0), writer: Mutex::default(), fails });
        let writer = Arc::new(Writer::new(Arc::clone(&slow) as Arc<dyn BatchStore>).unwrap());
        *slow.writer.lock() = Some(Arc::clone(&writer));
        let start = |number: usize| {
            let writer = Arc::clone(&writer);
            thread::spawn(move || writer.write(Vec::new(), Some((number.to_string(), vec![1]))))
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        // The two keep each other.
        slow.writer.lock().take();
        (slow, results)
    }

    #[test]
    fn those_that_wait_are_written_together_and_each_once() {
        let (slow, results) = written(false);
        assert!(results.iter().all(Result::is_ok));
        assert_eq!(slow.ids().unwrap().len(), THREADS);
        assert!(slow.writes.load(Ordering::Acquire) <= 2);
    }

    #[test]
    fn a_write_that_fails_fails_for_all_that_are_in_it() {
        let (slow, results) = written(true);
        assert!(results.iter().all(Result::is_err));
        assert!(slow.ids().unwrap().is_empty());
    }
}
