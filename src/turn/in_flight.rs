//! Counts the bytes of all requests that are being read, rendered and put into ids. A request that would exceed the
//! bound is refused and may come again.
//!
//! A request takes its place byte by byte as its body is read, and gives it back when its prompt is in ids and the
//! engine has it. Work that goes on after its client has gone, because another thread cannot be interrupted, keeps its
//! place.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::Semaphore,
    task::JoinSet,
};

use super::{TurnError, memory};

/// A request of more bytes than this is a large one.
pub const LARGE: usize = 1 << 20;
/// After a request of more bytes than this, the freed memory that the allocator keeps is given back to the system.
const WORTH_TRIMMING: usize = 1 << 23;
/// More threads than this put no more prompts into ids: templates and tokenizers are many times as fast as models.
const MOST_THREADS: usize = 16;
/// One part in this many of the bound is kept for requests that are not large.
const FOR_SMALL: usize = 8;

tokio::task_local! {
    static CURRENT: Arc<Reservation>;
}

/// The bound, and the bytes of it that are in use.
#[derive(Debug, Clone)]
pub struct BytesInFlight(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    used: AtomicUsize,
    /// Permits for large requests that are worked on at the same time: half of the processor is left for all other
    /// requests.
    turns: Arc<Semaphore>,
}

impl BytesInFlight {
    /// Makes a bound of `most` bytes.
    pub fn new(most: usize) -> Self {
        let turns = Arc::new(Semaphore::new((cores() / 2).max(1)));
        Self(Arc::new(Shared { most, used: AtomicUsize::new(0), turns }))
    }

    /// Returns the length of the longest body that can ever be read.
    pub fn longest(&self) -> usize {
        self.0.room(LARGE + 1).max(LARGE.min(self.0.most))
    }

    /// Refuses a body of a known length if there is no room for it now.
    pub fn check(&self, bytes: usize) -> Result<(), TurnError> {
        let used = self.0.used.load(Ordering::Relaxed);
        if used.saturating_add(bytes) > self.0.room(bytes) { Err(self.0.refusal()) } else { Ok(()) }
    }

    /// Makes a reservation of no bytes yet.
    pub fn reservation(&self) -> Reservation {
        Reservation { shared: Arc::clone(&self.0), bytes: AtomicUsize::new(0) }
    }
}

impl Shared {
    /// Returns the bound that applies to a request of this many bytes.
    fn room(&self, bytes: usize) -> usize {
        if bytes > LARGE { self.most - self.most / FOR_SMALL } else { self.most }
    }

    fn refusal(&self) -> TurnError {
        TurnError::BytesInFlight { most: self.most }
    }
}

/// The bytes that one request has in use.
#[derive(Debug)]
pub struct Reservation {
    shared: Arc<Shared>,
    bytes: AtomicUsize,
}

impl Reservation {
    /// Reserves this many more bytes, or refuses them.
    pub fn grow(&self, bytes: usize) -> Result<(), TurnError> {
        let whole = self.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        let room = self.shared.room(whole);
        let grown = |used: usize| used.checked_add(bytes).filter(|used| *used <= room);
        match self.shared.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) {
            Ok(_) => {
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                Ok(())
            }
            Err(_) => Err(self.shared.refusal()),
        }
    }

    /// Whether the request is a large one.
    pub fn is_large(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > LARGE
    }

    fn release(&self) {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        self.shared.used.fetch_sub(bytes, Ordering::Relaxed);
        if bytes > WORTH_TRIMMING {
            trim();
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}

/// Gives memory back to the system, away from the threads that serve connections.
fn trim() {
    static RUNS: AtomicBool = AtomicBool::new(false);
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    if !RUNS.swap(true, Ordering::Relaxed) {
        runtime.spawn_blocking(|| {
            // Memory that is freed from now on is for the next run to give back.
            RUNS.store(false, Ordering::Relaxed);
            memory::give_back();
        });
    }
}

/// Serves a request while its reservation is held.
pub async fn within<F: Future>(reservation: Arc<Reservation>, serve: F) -> F::Output {
    CURRENT.scope(reservation, serve).await
}

/// Serves the current request in another task, which shares its reservation.
pub fn inherited<F: Future>(serve: F) -> impl Future<Output = F::Output> {
    let held = CURRENT.try_with(Arc::clone).ok();
    async move {
        match held {
            Some(reservation) => within(reservation, serve).await,
            None => serve.await,
        }
    }
}

/// Gives back the reservation of the current request: the engine owns what is left of it.
pub(super) fn release() {
    if let Ok(reservation) = CURRENT.try_with(Arc::clone) {
        reservation.release();
    }
}

/// Runs work that may take long away from the threads that serve connections. Large requests wait for their turn. Work that has
/// begun goes on if nobody waits for it any more.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, TurnError> {
    let held = CURRENT.try_with(Arc::clone).ok();
    let turn = match &held {
        Some(reservation) if reservation.is_large() => {
            let turns = Arc::clone(&reservation.shared.turns);
            Some(turns.acquire_owned().await.map_err(TurnError::internal)?)
        }
        _ => None,
    };
    let work = move || {
        let result = work();
        drop((turn, held));
        result
    };
    // Dropped with the client's request, it takes work away that has not begun.
    let mut task = JoinSet::new();
    task.spawn_blocking_on(work, prompt_threads().map_err(TurnError::internal)?);
    match task.join_next().await {
        Some(done) => done.map_err(TurnError::internal),
        None => Err(TurnError::internal("work was lost")),
    }
}

/// Puts a prompt into ids: a short one here, which takes about as long as handing it to another thread would, and any other one
/// as [`blocking`] does.
pub(super) async fn prompting<T: Send + 'static>(
    is_short: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TurnError> {
    // Each thread keeps a table of words, and those that serve connections are as many as cores.
    if is_short && cores() <= MOST_THREADS { Ok(work()) } else { blocking(work).await }
}

fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

/// The threads for such work, which last as long as the process. There are no more than cores, and few: each keeps a table of
/// the words that it has encoded, 2 to 64 MiB long.
fn prompt_threads() -> Result<&'static Handle, &'static std::io::Error> {
    static THREADS: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let made = THREADS.get_or_init(|| {
        Builder::new_current_thread()
            .max_blocking_threads(cores().clamp(2, MOST_THREADS))
            .thread_keep_alive(Duration::from_hours(1))
            .thread_name("prompts")
            .build()
    });
    made.as_ref().map(Runtime::handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn work_has_no_more_threads_than_there_are_cores() {
        let names =
            (0..100).map(|_| blocking(|| (thread::current().id(), thread::current().name().map(str::to_owned))));
        let names = futures::future::try_join_all(names).await.unwrap();
        let threads: std::collections::HashSet<_> = names.iter().map(|(id, _)| *id).collect();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        assert!(threads.len() <= cores.clamp(2, MOST_THREADS), "{}", threads.len());
        assert!(names.iter().all(|(_, name)| name.as_deref() == Some("prompts")));
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_any_more_does_not_begin() {
        let threads = cores().clamp(2, MOST_THREADS);
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        let busy: Vec<_> = (0..threads)
            .map(|_| {
                let wait = Arc::clone(&wait);
                let (started, has_started) = tokio::sync::oneshot::channel();
                let work = blocking(move || {
                    started.send(()).unwrap();
                    _ = wait.lock().unwrap().recv();
                });
                (tokio::spawn(work), has_started)
            })
            .collect();
        let mut running = Vec::new();
        for (work, has_started) in busy {
            has_started.await.unwrap();
            running.push(work);
        }
        let has_run = Arc::new(AtomicBool::new(false));
        let ran = Arc::clone(&has_run);
        let queued = tokio::spawn(blocking(move || ran.store(true, Ordering::Relaxed)));
        tokio::task::yield_now().await;
        queued.abort();
        assert!(queued.await.unwrap_err().is_cancelled());
        drop(go);
        // Work is begun in the order in which it came.
        blocking(|| ()).await.unwrap();
        for work in running {
            work.await.unwrap().unwrap();
        }
        assert!(!has_run.load(Ordering::Relaxed));
    }

    #[test]
    fn requests_share_the_bound_and_give_their_part_back() {
        let bound = BytesInFlight::new(16 * MIB);
        let (first, second) = (bound.reservation(), bound.reservation());
        first.grow(8 * MIB).unwrap();
        second.grow(6 * MIB).unwrap();
        assert!(matches!(second.grow(1), Err(TurnError::BytesInFlight { .. })));
        assert!(bound.check(2 * MIB).is_err());
        drop(first);
        second.grow(MIB).unwrap();
        bound.check(2 * MIB).unwrap();
        second.release();
        assert_eq!(bound.0.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn large_requests_leave_room_for_small_ones() {
        let bound = BytesInFlight::new(16 * MIB);
        let large = bound.reservation();
        large.grow(14 * MIB).unwrap();
        assert!(large.grow(1).is_err());
        for _ in 0..2 {
            std::mem::forget(bound.reservation().grow(MIB));
        }
        bound.check(MIB).unwrap();
        assert_eq!(bound.longest(), 14 * MIB);
    }

    #[tokio::test]
    async fn work_keeps_its_place_when_its_client_has_gone() {
        let bound = BytesInFlight::new(MIB);
        let reservation = Arc::new(bound.reservation());
        reservation.grow(MIB).unwrap();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (started, has_started) = tokio::sync::oneshot::channel();
        let work = blocking(move || {
            started.send(()).unwrap();
            _ = wait.recv();
        });
        let request = tokio::spawn(within(reservation, async { _ = work.await }));
        has_started.await.unwrap();
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
        assert!(bound.check(1).is_err());
        drop(go);
        let given_back = async {
            while bound.check(1).is_err() {
                tokio::task::yield_now().await;
            }
        };
        let came = tokio::time::timeout(std::time::Duration::from_mins(4), given_back).await.is_ok();
        assert!(came, "the work has ended, and keeps its place");
    }
}
