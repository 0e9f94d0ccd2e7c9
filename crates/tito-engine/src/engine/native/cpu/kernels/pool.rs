//! The threads that compute: parked while there is nothing to do, and awake between the loops of a step.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle, Thread},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::parts::Parts;

/// How long a thread looks for the next loop before it parks. A step's loops follow each other within microseconds;
/// between two steps, the sampled tokens are handed on.
const SPIN: Duration = Duration::from_micros(100);
/// Spins between two looks at the clock.
const SPINS_PER_LOOK: u32 = 64;

/// More than any system runs; what follows makes room for as many.
const MOST_THREADS: usize = 1 << 16;

/// What all threads run: called once on each, with the thread's number.
type Task<'a> = dyn Fn(usize) + Sync + 'a;

/// A fixed set of threads; the caller of [`Pool::run`] is one of them.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    /// The loop to run, valid for those who joined the round.
    task: AtomicPtr<&'static Task<'static>>,
    /// The number of the round, whether it is closed, and how many workers are in it.
    round: AtomicU64,
    parked: Vec<AtomicBool>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
}

/// The bit of [`Shared::round`] that says that nobody may join any more.
const CLOSED: u64 = 1 << 31;
/// The bits of [`Shared::round`] that count the workers in it.
const JOINED: u64 = CLOSED - 1;
/// The bit of [`Shared::round`] at which its number begins.
const NUMBER: u32 = 32;

impl Pool {
    /// A pool of `threads` threads, the caller among them.
    ///
    /// They are not pinned to cores: the threads that talk to clients need a moment of one now and then, and a pinned
    /// thread waits for it while another core is free.
    pub(crate) fn new(threads: usize) -> std::io::Result<Self> {
        if threads > MOST_THREADS {
            return Err(std::io::Error::other(format!("{threads} threads are more than {MOST_THREADS}")));
        }
        let workers = threads.saturating_sub(1);
        let shared = Arc::new(Shared {
            task: AtomicPtr::new(std::ptr::null_mut()),
            round: AtomicU64::new(CLOSED),
            parked: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
        });
        let mut pool = Self { shared, workers: Vec::with_capacity(workers) };
        for number in 1..=workers {
            let shared = Arc::clone(&pool.shared);
            let work = move || shared.work(number);
            pool.workers.push(thread::Builder::new().name(format!("compute-{number}")).spawn(work)?);
        }
        Ok(pool)
    }

    /// The number of threads, the caller's included.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task` here and on every worker that comes before that call is done, with the thread's number; returns
    /// when all are done. A worker that the system keeps from coming is not waited for. A panic of any goes on here.
    fn run(&mut self, task: &Task<'_>) {
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes; whoever joined is done with it before this function returns or unwinds.
        let mut task_for_workers: &'static Task<'static> =
            unsafe { std::mem::transmute::<&Task<'_>, &'static Task<'static>>(task) };
        shared.task.store(&raw mut task_for_workers, Ordering::Relaxed);
        let number = (shared.round.load(Ordering::Relaxed) >> NUMBER).wrapping_add(1);
        // Nobody is in the last round, which is closed, so nobody else writes this now.
        shared.round.store(number << NUMBER, Ordering::SeqCst);
        for (parked, worker) in shared.parked.iter().zip(&self.workers) {
            if parked.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        let own = catch_unwind(AssertUnwindSafe(|| task(0)));
        shared.round.fetch_or(CLOSED, Ordering::AcqRel);
        let mut spins = 0_u32;
        while shared.round.load(Ordering::Acquire) & JOINED > 0 {
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(4096) { thread::yield_now() } else { std::hint::spin_loop() }
        }
        // The panic is taken in any case, since the next loop must not end with a panic of this one.
        let of_a_worker = shared.panic.lock().take();
        if let Some(panic) = own.err().or(of_a_worker) {
            resume_unwind(panic);
        }
    }

    /// Calls `work` with every index below `count`, on whichever thread is free.
    pub(super) fn for_each(&mut self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        if count <= 1 || self.workers.is_empty() {
            return (0..count).for_each(work);
        }
        let next = AtomicUsize::new(0);
        self.run(&|_| {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    break;
                }
                work(index);
            }
        });
    }

    /// Calls `work` with each item and its index, on whichever thread is free.
    pub(crate) fn for_each_mut<T: Send>(&mut self, items: &mut [T], work: &(dyn Fn(usize, &mut T) + Sync)) {
        let count = items.len();
        let parts = Parts::new(items);
        self.for_each(count, &|index| {
            // SAFETY: every index is given out once.
            let item = unsafe { parts.part(index, 1) };
            work(index, &mut item[0]);
        });
    }
}

impl Shared {
    fn work(&self, number: usize) {
        let mut seen = 0;
        while self.join(&mut seen, number) {
            // SAFETY: the task was stored before the round was opened, and lives as long as somebody is in the round.
            let task = unsafe { *self.task.load(Ordering::Relaxed) };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task(number))) {
                *self.panic.lock() = Some(panic);
            }
            self.round.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for a round after `seen` and joins it; `false` once the pool is gone.
    fn join(&self, seen: &mut u64, number: usize) -> bool {
        let parked = &self.parked[number - 1];
        let mut until = Instant::now() + SPIN;
        loop {
            for _ in 0..SPINS_PER_LOOK {
                if self.try_join(seen) {
                    return true;
                }
                std::hint::spin_loop();
            }
            if self.stop.load(Ordering::SeqCst) {
                return false;
            }
            if Instant::now() >= until {
                parked.store(true, Ordering::SeqCst);
                // The round is looked at again, since whoever opened one before the line above did not see us parked.
                let missed = self.round.load(Ordering::SeqCst) >> NUMBER != *seen;
                if !missed && !self.stop.load(Ordering::SeqCst) {
                    thread::park();
                }
                parked.store(false, Ordering::SeqCst);
                until = Instant::now() + SPIN;
            }
        }
    }

    /// Joins the round if it is a new one that is still open.
    fn try_join(&self, seen: &mut u64) -> bool {
        let round = self.round.load(Ordering::Acquire);
        if round >> NUMBER == *seen {
            return false;
        }
        if round & CLOSED > 0 {
            *seen = round >> NUMBER;
            return false;
        }
        // This fails where another worker joins at the same time; the next look tries again.
        let joined = self.round.compare_exchange_weak(round, round + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if joined {
            *seen = round >> NUMBER;
        }
        joined
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            Thread::unpark(worker.thread());
            // A worker only ends by `stop`; its panics were handed on.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn every_index_is_worked_on_once_whatever_the_number_of_threads() {
        for threads in 1..=4 {
            let mut pool = Pool::new(threads).unwrap();
            for count in [0, 1, 2, 7, 1000] {
                let mut items = vec![0_usize; count];
                pool.for_each_mut(&mut items, &|index, item| *item += index + 1);
                assert!(items.iter().enumerate().all(|(index, item)| *item == index + 1));
            }
        }
    }

    #[test]
    fn more_threads_than_a_system_has_are_refused() {
        for threads in [1 << 20, usize::MAX] {
            let error = Pool::new(threads).err().unwrap().to_string();
            assert_eq!(error, format!("{threads} threads are more than 65536"));
        }
    }

    #[test]
    fn a_panic_on_any_thread_reaches_the_caller_and_the_pool_goes_on() {
        let mut pool = Pool::new(3).unwrap();
        for number in 0..3 {
            // Keeps the round open until all threads are in it.
            let all = Barrier::new(3);
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|thread| {
                    all.wait();
                    assert!(thread != number, "thread {number} panics");
                });
            }));
            assert!(result.is_err());
        }
        let all = Barrier::new(3);
        let everywhere = catch_unwind(AssertUnwindSafe(|| {
            pool.run(&|thread| {
                all.wait();
                panic!("thread {thread} panics");
            });
        }));
        assert!(everywhere.is_err());
        let (all, calls) = (Barrier::new(3), AtomicUsize::new(0));
        pool.run(&|_| {
            all.wait();
            calls.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(calls.into_inner(), 3);
    }

    #[test]
    fn parked_threads_wake_for_the_next_loop() {
        let mut pool = Pool::new(2).unwrap();
        for _ in 0..3 {
            while !pool.shared.parked[0].load(Ordering::SeqCst) {
                thread::yield_now();
            }
            let both = Barrier::new(2);
            pool.run(&|_| _ = both.wait());
        }
    }

    #[test]
    fn nothing_is_lost_when_rounds_follow_each_other_at_once() {
        let mut pool = Pool::new(3).unwrap();
        let mut items = [0_u32; 5];
        for _ in 0..20_000 {
            pool.for_each_mut(&mut items, &|_, item| *item += 1);
        }
        assert_eq!(items, [20_000; 5]);
    }
}
