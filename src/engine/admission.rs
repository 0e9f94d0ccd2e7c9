//! The queue in front of an engine: first come, first served, `seats` sequences at a time.
//!
//! Owns who runs, who waits and whether anyone is still admitted. Refuses what a sequence does with its seat.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use super::{EngineError, EngineLoad};

/// Seats and the queue for them.
#[derive(Debug)]
pub(crate) struct Admission {
    seats: usize,
    max_waiting: usize,
    state: Mutex<State>,
    load: watch::Sender<EngineLoad>,
    closed: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    next_number: u64,
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
    running: BTreeSet<u64>,
}

/// A place in the queue, later a seat. Dropping it gives either back.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
    number: u64,
    called: oneshot::Receiver<()>,
}

impl Admission {
    /// `seats` is at least 1; `max_waiting` bounds the queue behind them.
    pub(crate) fn new(seats: usize, max_waiting: usize) -> Self {
        Self {
            seats: seats.max(1),
            max_waiting,
            state: Mutex::default(),
            load: watch::Sender::new(EngineLoad::default()),
            closed: watch::Sender::new(false),
        }
    }

    /// Joins the queue; the order of calls is the order of service.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<Place, EngineError> {
        let mut state = self.state.lock();
        self.health()?;
        let all_seated = state.running.len() >= self.seats;
        if all_seated && state.waiting.len() >= self.max_waiting {
            return Err(EngineError::Overloaded);
        }
        let number = state.next_number;
        state.next_number += 1;
        let (call, called) = oneshot::channel();
        state.waiting.insert(number, call);
        self.fill_seats(&mut state);
        drop(state);
        Ok(Place { admission: Arc::clone(self), number, called })
    }

    /// Sequences in the engine now.
    pub(crate) fn load(&self) -> EngineLoad {
        *self.load.borrow()
    }

    /// Sends everyone who waits away and admits nobody any more.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        self.closed.send_replace(true);
        state.waiting.clear();
        self.fill_seats(&mut state);
    }

    /// `Err` once nobody is admitted any more.
    pub(crate) fn health(&self) -> Result<(), EngineError> {
        if *self.closed.borrow() {
            return Err(EngineError::Failed("the engine is shut down".to_owned()));
        }
        Ok(())
    }

    /// Closes, then waits until nothing runs, at most `grace`.
    pub(crate) async fn shutdown(&self, grace: Duration) {
        self.close();
        // A sequence that nobody drives keeps its seat.
        let _ = tokio::time::timeout(grace, self.idle()).await;
    }

    async fn idle(&self) {
        let _ = self.load.subscribe().wait_for(|load| *load == EngineLoad::default()).await;
    }

    fn leave(&self, number: u64) {
        let mut state = self.state.lock();
        if state.waiting.remove(&number).is_none() {
            state.running.remove(&number);
        }
        self.fill_seats(&mut state);
    }

    fn fill_seats(&self, state: &mut State) {
        while state.running.len() < self.seats
            && let Some((number, call)) = state.waiting.pop_first()
        {
            state.running.insert(number);
            // A receiver that is gone gives the seat back itself: `Place::drop` waits for this lock.
            let _ = call.send(());
        }
        self.load.send_replace(EngineLoad {
            running: state.running.len(),
            waiting: state.waiting.len(),
            ..EngineLoad::default()
        });
    }
}

impl Place {
    /// Waits for the seat; `false` if the engine closed first.
    pub(crate) async fn seated(&mut self) -> bool {
        (&mut self.called).await.is_ok()
    }

    /// Whether the engine closed, so that the sequence should end now.
    pub(crate) fn is_dismissed(&self) -> bool {
        self.admission.health().is_err()
    }

    /// Resolves when the engine closes.
    pub(crate) async fn dismissed(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.admission.closed.subscribe().wait_for(|closed| *closed).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.admission.leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn admission(seats: usize, max_waiting: usize) -> Arc<Admission> {
        Arc::new(Admission::new(seats, max_waiting))
    }

    #[tokio::test]
    async fn seats_are_given_in_the_order_of_arrival() {
        let admission = admission(1, 8);
        let mut first = admission.enter().unwrap();
        let mut second = admission.enter().unwrap();
        let mut third = admission.enter().unwrap();
        assert_eq!(admission.load(), EngineLoad { running: 1, waiting: 2, ..EngineLoad::default() });
        assert!(first.seated().await);
        drop(first);
        assert_eq!(third.seated().now_or_never(), None);
        assert_eq!(second.seated().now_or_never(), Some(true));
        drop(second);
        assert_eq!(third.seated().now_or_never(), Some(true));
    }

    #[tokio::test]
    async fn leaving_the_queue_frees_the_place_for_those_behind() {
        let admission = admission(1, 2);
        let first = admission.enter().unwrap();
        let second = admission.enter().unwrap();
        let mut third = admission.enter().unwrap();
        assert_eq!(admission.enter().unwrap_err(), EngineError::Overloaded);
        drop(second);
        drop(first);
        assert!(third.seated().await);
        assert_eq!(admission.load(), EngineLoad { running: 1, ..EngineLoad::default() });
    }

    #[tokio::test]
    async fn a_seat_that_was_called_but_never_taken_is_given_on() {
        let admission = admission(1, 8);
        let first = admission.enter().unwrap();
        let second = admission.enter().unwrap();
        let mut third = admission.enter().unwrap();
        drop(first);
        drop(second);
        assert!(third.seated().await);
    }

    #[tokio::test]
    async fn closing_sends_the_queue_away_and_refuses_newcomers() {
        let admission = admission(1, 8);
        let mut first = admission.enter().unwrap();
        let mut second = admission.enter().unwrap();
        admission.close();
        first.dismissed().await;
        assert!(first.seated().await);
        assert!(!second.seated().await);
        assert!(matches!(admission.enter(), Err(EngineError::Failed(_))));
        assert_eq!(admission.idle().now_or_never(), None);
        drop(first);
        admission.idle().await;
    }
}
