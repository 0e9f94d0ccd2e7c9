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
    kept: Vec<(String, Arc<[u8]>)>,
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

    /// Forgets records and keeps others; when this returns, the store has done all of it, or nothing.
    pub(super) fn write(&self, gone: Vec<String>, kept: Vec<(String, Arc<[u8]>)>) -> Result<(), StoreError> {
        let job = Arc::new(Job { gone, kept, done: Mutex::default() });
        self.waiting.lock().push(Arc::clone(&job));
        let _turn = self.turn.lock();
        if let Some(done) = job.done.lock().take() {
            return done;
        }
        let jobs = std::mem::take(&mut *self.waiting.lock());
        let gone: Vec<String> = jobs.iter().flat_map(|job| job.gone.iter().cloned()).collect();
        let kept = jobs.iter().flat_map(|job| &job.kept);
        let kept: Vec<(&str, &[u8])> = kept.map(|(id, record)| (id.as_str(), &**record)).collect();
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
    use crate::store::{
        MemoryStore,
        watched::{WatchedStore, no_space},
    };

    /// A disk whose first write takes until others wait.
    struct Slow {
        writes: AtomicUsize,
        writer: Mutex<Option<Arc<Writer>>>,
        fails: bool,
    }

    const THREADS: usize = 8;

    impl Slow {
        fn before_write(&self, records: usize) -> Result<(), StoreError> {
            let writer = self.writer.lock().clone().expect("it is set before anybody writes");
            if self.writes.fetch_add(1, Ordering::AcqRel) == 0 {
                while writer.waiting.lock().len() < THREADS - records {
                    thread::yield_now();
                }
            }
            if self.fails { Err(no_space()) } else { Ok(()) }
        }
    }

    struct Written {
        kept: Arc<MemoryStore>,
        writes: usize,
        results: Vec<Result<(), StoreError>>,
    }

    fn written(fails: bool) -> Written {
        let kept = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX));
        let slow = Arc::new(Slow { writes: AtomicUsize::new(0), writer: Mutex::default(), fails });
        let asked = Arc::clone(&slow);
        let before_write = move |records| asked.before_write(records);
        let store = Arc::new(WatchedStore { kept: Arc::clone(&kept), before_write });
        let writer = Arc::new(Writer::new(store).unwrap());
        *slow.writer.lock() = Some(Arc::clone(&writer));
        let start = |number: usize| {
            let writer = Arc::clone(&writer);
            thread::spawn(move || writer.write(Vec::new(), vec![(number.to_string(), [1].into())]))
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        // The two keep each other.
        slow.writer.lock().take();
        Written { kept, writes: slow.writes.load(Ordering::Acquire), results }
    }

    #[test]
    fn those_that_wait_are_written_together_and_each_once() {
        let Written { kept, writes, results } = written(false);
        assert!(results.iter().all(Result::is_ok));
        assert_eq!(kept.ids().unwrap().len(), THREADS);
        assert!(writes <= 2);
    }

    #[test]
    fn a_write_that_fails_fails_for_all_that_are_in_it() {
        let Written { kept, results, .. } = written(true);
        assert!(results.iter().all(Result::is_err));
        assert!(kept.ids().unwrap().is_empty());
    }
}
