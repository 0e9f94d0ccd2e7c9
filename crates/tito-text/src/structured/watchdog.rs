//! Ends what takes too long: a token's worth of work over a grammar, whatever the grammar is.
//!
//! The compiler bounds its work by counts, but a count can hide much work; so there is a clock as the last resort. Owns one
//! thread, which sleeps while no grammar is followed.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use llguidance::CancellationHandle;
use parking_lot::{Condvar, Mutex};

/// How long one piece of work may take. Ordinary ones take microseconds, the most that counts allow some tenths of a
/// second.
const LONGEST: Duration = Duration::from_secs(1);
/// How often the clock is looked at.
const TICK: Duration = Duration::from_millis(100);

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Watchdog {
    shared: Arc<Shared>,
    began: Instant,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    watched: Vec<Weak<Watched>>,
    is_running: bool,
    is_closed: bool,
}

/// Something whose pieces of work are watched.
#[derive(Debug)]
pub(super) struct Watched {
    began: Instant,
    /// When the piece of work began, in milliseconds plus one; 0 while there is none.
    busy_since: AtomicU64,
    handle: CancellationHandle,
}

/// A piece of work; ends with its value.
pub(super) struct Busy<'a>(&'a Watched);

impl Watchdog {
    pub(super) fn new() -> Self {
        Self { shared: Arc::default(), began: Instant::now() }
    }

    /// Watches what `handle` cancels, until the answer is dropped.
    pub(super) fn watch(&self, handle: CancellationHandle) -> Arc<Watched> {
        let watched = Arc::new(Watched { began: self.began, busy_since: AtomicU64::new(0), handle });
        let mut state = self.shared.state.lock();
        state.watched.push(Arc::downgrade(&watched));
        if !state.is_running {
            let (shared, began) = (Arc::clone(&self.shared), self.began);
            let thread = thread::Builder::new().name("grammar-watch".to_owned());
            // Without a thread the counts still hold.
            state.is_running = thread.spawn(move || shared.run(began)).is_ok();
        }
        drop(state);
        self.shared.changed.notify_one();
        watched
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn run(&self, began: Instant) {
        let mut state = self.state.lock();
        while !state.is_closed {
            let now = milliseconds(began.elapsed());
            state.watched.retain(|watched| watched.upgrade().is_some_and(|watched| watched.look(now)));
            if state.watched.is_empty() {
                self.changed.wait(&mut state);
            } else {
                self.changed.wait_for(&mut state, TICK);
            }
        }
    }
}

impl Watched {
    /// Begins a piece of work.
    pub(super) fn busy(&self) -> Busy<'_> {
        self.busy_since.store(milliseconds(self.began.elapsed()), Ordering::Relaxed);
        Busy(self)
    }

    /// Cancels a piece of work that has taken too long, and returns whether there can be another one.
    fn look(&self, now: u64) -> bool {
        let since = self.busy_since.load(Ordering::Relaxed);
        let late = since > 0 && now.saturating_sub(since) > milliseconds(LONGEST);
        if late {
            self.handle.cancel();
        }
        !late
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy_since.store(0, Ordering::Relaxed);
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX - 1) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_cancelled_once_it_has_taken_too_long_and_not_before() {
        let handle = CancellationHandle::default();
        let watched = Watched { began: Instant::now(), busy_since: AtomicU64::new(0), handle: handle.clone() };
        let limit = milliseconds(LONGEST);
        assert!(watched.look(10 * limit), "nothing is being done");
        watched.busy_since.store(1_000, Ordering::Relaxed);
        assert!(watched.look(1_000 + limit));
        assert!(!handle.is_cancelled());
        assert!(!watched.look(1_001 + limit));
        assert!(handle.is_cancelled());
    }

    #[test]
    fn a_piece_of_work_begins_and_ends() {
        let watchdog = Watchdog::new();
        let watched = watchdog.watch(CancellationHandle::default());
        let busy = watched.busy();
        assert!(watched.busy_since.load(Ordering::Relaxed) > 0);
        drop(busy);
        assert_eq!(watched.busy_since.load(Ordering::Relaxed), 0);
    }
}
