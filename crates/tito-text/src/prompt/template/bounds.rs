//! What one template may cost, so that none stops the server: how long and how deeply nested its source may be, and how
//! many steps, how much memory and how much time a render may take.
//!
//! The meter belongs to the thread, since a render stays on one from its start to its end: so every value that comes
//! into being is counted, whichever operator, filter or method makes it, and counted back when it is dropped.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::error::{Error, Limit};

/// The longest source, in bytes; the longest template of a released model has a tenth of it.
pub(super) const MAX_SOURCE: usize = 256 << 10;

/// How deeply brackets and statements may be nested in each other.
pub(super) const MAX_NESTING: usize = 100;

/// How many functions of a render may wait for each other: those that run statements and expressions, of which a call
/// of a macro takes five or so, and those that go through lists and dicts. Twice as many fit into the stack of a thread.
const MAX_DEPTH: usize = 400;

/// How deeply lists and dicts may be nested; those of a request are at most `json::MAX_DEPTH` deep.
pub(super) const MAX_VALUE_DEPTH: usize = 320;

/// How many steps a render may take: one for each statement, expression and item, and one for each 64 bytes that are
/// copied or looked through. A message takes some hundreds.
const MAX_STEPS: u64 = 100_000_000;

/// How many steps reading a template may take, besides those that grow with its length only.
const MAX_STEPS_OF_READING: u64 = 2_000_000;

/// What the values and the text that a render has made may hold at a time, in bytes.
const MAX_MEMORY: usize = 64 << 20;

/// How long the renders of a request may take together. The steps end sooner, unless the machine is very busy.
const MAX_TIME: Duration = Duration::from_secs(30);

/// The clock and whoever waits are asked once in so many steps.
const STEPS_BETWEEN_LOOKS: u64 = 4096;

/// Whether the renders of a request are still wanted: until their time is over, which begins with the first of them,
/// or nobody waits for them any more. Clones are one.
#[derive(Clone, Debug)]
pub struct Patience(Arc<Waiting>);

#[derive(Debug)]
struct Waiting {
    time: Duration,
    steps: u64,
    since: OnceLock<Instant>,
    is_given_up: AtomicBool,
}

impl Default for Patience {
    fn default() -> Self {
        Self::lasting(MAX_TIME)
    }
}

impl Patience {
    /// Patience that lasts so long from the start of the first render, and for as many steps as each may take.
    pub fn lasting(time: Duration) -> Self {
        Self::new(time, MAX_STEPS)
    }

    fn new(time: Duration, steps: u64) -> Self {
        Self(Arc::new(Waiting { time, steps, since: OnceLock::new(), is_given_up: AtomicBool::new(false) }))
    }

    /// Patience for fewer steps, so that tests end sooner.
    #[cfg(test)]
    pub(super) fn for_steps(steps: u64) -> Self {
        Self::new(MAX_TIME, steps)
    }

    /// Ends every render that looks at it.
    pub fn give_up(&self) {
        self.0.is_given_up.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> Result<(), Error> {
        if self.0.is_given_up.load(Ordering::Relaxed) {
            return Err(Error::exceeded(Limit::Wanted));
        }
        if self.0.since.get_or_init(Instant::now).elapsed() >= self.0.time {
            return Err(Error::exceeded(Limit::Time));
        }
        Ok(())
    }
}

thread_local! {
    static METER: Meter = const { Meter::new() };
}

struct Meter {
    /// Nothing is counted outside of renders.
    is_running: Cell<bool>,
    most_steps: Cell<u64>,
    steps: Cell<u64>,
    next_look: Cell<u64>,
    bytes: Cell<usize>,
    depth: Cell<usize>,
    patience: RefCell<Option<Patience>>,
}

impl Meter {
    const fn new() -> Self {
        Self {
            is_running: Cell::new(false),
            most_steps: Cell::new(0),
            steps: Cell::new(0),
            next_look: Cell::new(0),
            bytes: Cell::new(0),
            depth: Cell::new(0),
            patience: RefCell::new(None),
        }
    }

    fn reset(&self, patience: Option<Patience>) {
        self.is_running.set(patience.is_some());
        self.most_steps.set(patience.as_ref().map_or(0, |patience| patience.0.steps));
        self.steps.set(0);
        self.next_look.set(0);
        self.bytes.set(0);
        self.patience.replace(patience);
    }

    fn check(&self) -> Result<(), Error> {
        if self.bytes.get() > MAX_MEMORY {
            return Err(Error::exceeded(Limit::Memory));
        }
        let steps = self.steps.get();
        if steps < self.next_look.get() || !self.is_running.get() {
            return Ok(());
        }
        if steps > self.most_steps.get() {
            return Err(Error::exceeded(Limit::Steps));
        }
        self.next_look.set(steps + STEPS_BETWEEN_LOOKS);
        self.patience.borrow().as_ref().map_or(Ok(()), Patience::check)
    }
}

/// Counts what reading or rendering a template costs, until it is dropped.
pub(super) struct Metered(());

impl Metered {
    pub(super) fn rendering(patience: &Patience) -> Self {
        METER.with(|meter| meter.reset(Some(patience.clone())));
        Self(())
    }

    pub(super) fn reading() -> Self {
        METER.with(|meter| meter.reset(Some(Patience::new(MAX_TIME, MAX_STEPS_OF_READING))));
        Self(())
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        METER.with(|meter| meter.reset(None));
    }
}

/// What the values that the render has made hold now, in bytes.
pub(super) fn held_bytes() -> usize {
    METER.with(|meter| meter.bytes.get())
}

fn steps_for(bytes: usize) -> u64 {
    bytes as u64 / 64
}

/// One step of a render; an error where one of its bounds is reached.
pub(super) fn step() -> Result<(), Error> {
    METER.with(|meter| {
        meter.steps.set(meter.steps.get() + 1);
        meter.check()
    })
}

/// The steps that it takes to look through so many bytes.
pub(super) fn look_through(bytes: usize) -> Result<(), Error> {
    METER.with(|meter| {
        meter.steps.set(meter.steps.get() + 1 + steps_for(bytes));
        meter.check()
    })
}

/// Refuses what would take more bytes than are left, before it is made.
pub(super) fn reserve(bytes: usize) -> Result<(), Error> {
    METER.with(|meter| {
        if meter.bytes.get().saturating_add(bytes) > MAX_MEMORY {
            return Err(Error::exceeded(Limit::Memory));
        }
        meter.check()
    })
}

/// One of the functions that wait for each other, until it is dropped.
pub(super) struct Level(());

/// One step, and one level deeper.
pub(super) fn descend() -> Result<Level, Error> {
    METER.with(|meter| {
        if meter.depth.get() == MAX_DEPTH {
            return Err(Error::exceeded(Limit::Depth));
        }
        meter.depth.set(meter.depth.get() + 1);
        let level = Level(());
        meter.steps.set(meter.steps.get() + 1);
        meter.check().map(|()| level)
    })
}

impl Drop for Level {
    fn drop(&mut self) {
        METER.with(|meter| meter.depth.set(meter.depth.get() - 1));
    }
}

/// Bytes that something holds, as long as it lives.
#[derive(Debug, Default)]
pub(super) struct Charge(usize);

impl Charge {
    /// Counts bytes; where they are too many, the render's next step says so.
    pub(super) fn new(bytes: usize) -> Self {
        let mut charge = Self::default();
        charge.add(bytes);
        charge
    }

    pub(super) fn add(&mut self, bytes: usize) {
        METER.with(|meter| {
            if meter.is_running.get() {
                self.0 += bytes;
                meter.bytes.set(meter.bytes.get().saturating_add(bytes));
                meter.steps.set(meter.steps.get() + steps_for(bytes));
            }
        });
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.0 > 0 {
            // A thread that ends has no meter any more, and no render.
            let _ = METER.try_with(|meter| meter.bytes.set(meter.bytes.get().saturating_sub(self.0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_counted_back() {
        let _metered = Metered::rendering(&Patience::default());
        for _ in 0..8 {
            drop(Charge::new(MAX_MEMORY / 2));
            step().unwrap();
        }
        let held = [Charge::new(MAX_MEMORY / 2), Charge::new(MAX_MEMORY / 2 + 1)];
        assert_eq!(step().unwrap_err().limit(), Some(Limit::Memory));
        drop(held);
        step().unwrap();
        reserve(MAX_MEMORY).unwrap();
        assert_eq!(reserve(MAX_MEMORY + 1).unwrap_err().limit(), Some(Limit::Memory));
    }

    #[test]
    fn levels_are_counted_back() {
        let levels: Result<Vec<Level>, Error> = (0..MAX_DEPTH).map(|_| descend()).collect();
        assert_eq!(descend().map(|_| ()).unwrap_err().limit(), Some(Limit::Depth));
        drop(levels.unwrap());
        descend().map(|_| ()).unwrap();
    }

    #[test]
    fn steps_are_counted_out_and_start_anew() {
        let metered = Metered::rendering(&Patience::default());
        let over = usize::try_from(MAX_STEPS).unwrap() * 64;
        assert_eq!(look_through(over).unwrap_err().limit(), Some(Limit::Steps));
        drop(metered);
        step().unwrap();
        let _metered = Metered::rendering(&Patience::default());
        step().unwrap();
    }

    #[test]
    fn a_render_that_nobody_wants_or_whose_time_is_over_ends() {
        let patience = Patience::default();
        patience.clone().give_up();
        let metered = Metered::rendering(&patience);
        assert_eq!(step().unwrap_err().limit(), Some(Limit::Wanted));
        drop(metered);
        let _metered = Metered::rendering(&Patience::lasting(Duration::ZERO));
        assert_eq!(step().unwrap_err().limit(), Some(Limit::Time));
    }
}
