//! The queue in front of an engine: `seats` sequences at a time, in turns.
//!
//! Owns who runs, who waits and whether anyone is still admitted. Refuses what a sequence does with its seat.
//!
//! A sequence that rests says so: its last output was taken, and nobody asks for the next one. If seats are lent, one that
//! rests for long gives its seat to whoever waits, and queues up again when it is asked for more.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use super::{
    EngineError, EngineLoad,
    reservation::{Register, Reservation, Ticket},
    seat_queue::{Claimant, Party, Passed, SeatQueue},
};

/// Seats and the queue for them.
#[derive(Debug)]
pub struct Admission {
    seats: usize,
    register: Arc<Register>,
    /// After how long a rest a seat is given on; never, if there is none.
    lent_after: Option<Duration>,
    state: Mutex<AdmissionState>,
    load: watch::Sender<EngineLoad>,
    closed: watch::Sender<bool>,
}

#[derive(Debug)]
struct AdmissionState {
    /// The sequences that have a seat, by their numbers.
    seated: HashMap<u64, Seat>,
    /// The sequences whose seats were given to others while they rested.
    unseated: HashSet<u64>,
    turns: SeatQueue<oneshot::Sender<()>>,
    /// A task looks for seats to give on.
    lending: bool,
}

#[derive(Debug)]
struct Seat {
    claimant: Claimant,
    /// Since when the sequence rests.
    rests: Option<Instant>,
}

/// A place in the queue, which becomes a seat. Dropping it gives back whichever it is.
#[derive(Debug)]
pub struct Place {
    admission: Arc<Admission>,
    ticket: Ticket,
    called: oneshot::Receiver<()>,
}

impl Admission {
    /// A queue for `seats` sequences at a time, but at least one, in which no more than `max_waiting` others wait.
    pub fn new(seats: usize, max_waiting: usize) -> Self {
        let seats = seats.max(1);
        Self {
            seats,
            register: Register::new(seats.saturating_add(max_waiting)),
            lent_after: None,
            state: Mutex::new(AdmissionState {
                seated: HashMap::new(),
                unseated: HashSet::new(),
                turns: SeatQueue::new(seats),
                lending: false,
            }),
            load: watch::Sender::new(EngineLoad::default()),
            closed: watch::Sender::new(false),
        }
    }

    /// Gives the seat of a sequence on that rests for as long, if somebody waits for one.
    pub(crate) fn lending_after(self, rest: Duration) -> Self {
        Self { lent_after: Some(rest), ..self }
    }

    /// How many seats there are.
    pub fn seats(&self) -> usize {
        self.seats
    }

    /// Takes places for all `sequences` of a request, or none.
    pub fn reserve(&self, party: Option<Party>, sequences: usize) -> Result<Reservation, EngineError> {
        self.health()?;
        self.register.reserve(party, sequences)
    }

    /// Joins the queue.
    pub fn enter(self: &Arc<Self>, ticket: Ticket) -> Result<Place, EngineError> {
        let mut state = self.state.lock();
        self.health()?;
        let called = self.queue(&mut state, &ticket);
        drop(state);
        Ok(Place { admission: Arc::clone(self), ticket, called })
    }

    fn queue(self: &Arc<Self>, state: &mut AdmissionState, ticket: &Ticket) -> oneshot::Receiver<()> {
        let (call, called) = oneshot::channel();
        state.turns.wait(ticket.claimant.clone(), ticket.number, call);
        self.fill_seats(state);
        if let Some(rest) = self.lent_after
            && state.turns.waiting() > 0
            && !std::mem::replace(&mut state.lending, true)
        {
            tokio::spawn(lend(Arc::downgrade(self), rest));
        }
        called
    }

    /// Gives on the seats of those that rest for as long, as far as somebody waits; `false` once nobody does.
    fn lend_seats(&self, rest: Duration) -> bool {
        let mut state = self.state.lock();
        let rested = |seat: &Seat| seat.rests.is_some_and(|since| since.elapsed() >= rest);
        let mut resting: Vec<u64> =
            state.seated.iter().filter(|(_, seat)| rested(seat)).map(|(number, _)| *number).collect();
        resting.sort_unstable();
        for number in resting.into_iter().take(state.turns.waiting()) {
            let Some(seat) = state.seated.remove(&number) else { continue };
            state.turns.rise(&seat.claimant);
            state.unseated.insert(number);
        }
        self.fill_seats(&mut state);
        state.lending = state.turns.waiting() > 0;
        state.lending
    }

    /// Sequences in the engine now.
    pub fn load(&self) -> EngineLoad {
        let load = *self.load.borrow();
        EngineLoad { waiting: load.waiting + self.register.unstarted(), ..load }
    }

    /// Waits until the load is `wanted`.
    #[cfg(any(test, feature = "internals"))]
    pub(crate) async fn until(&self, wanted: EngineLoad) {
        // What changes after this is told, even if it is before the first look.
        let (mut load, mut unstarted) = (self.load.subscribe(), self.register.watch_unstarted());
        while self.load() != wanted {
            tokio::select! {
                _ = load.changed() => {}
                _ = unstarted.changed() => {}
            }
        }
    }

    /// Sends everyone who waits away and admits nobody any more.
    pub fn close(&self) {
        let mut state = self.state.lock();
        self.closed.send_replace(true);
        state.turns.clear();
        self.fill_seats(&mut state);
    }

    /// `Err` once nobody is admitted any more.
    pub fn health(&self) -> Result<(), EngineError> {
        if *self.closed.borrow() {
            return Err(EngineError::ShutDown);
        }
        Ok(())
    }

    /// Closes, then waits until nothing runs, at most `grace`.
    pub async fn shutdown(&self, grace: Duration) {
        self.close();
        // A sequence that nobody drives keeps its seat.
        let _ = tokio::time::timeout(grace, self.idle()).await;
    }

    async fn idle(&self) {
        let _ = self.load.subscribe().wait_for(|load| *load == EngineLoad::default()).await;
    }

    fn leave(&self, ticket: &Ticket) {
        let mut state = self.state.lock();
        if state.turns.remove(ticket.number).is_none()
            && !state.unseated.remove(&ticket.number)
            && let Some(seat) = state.seated.remove(&ticket.number)
        {
            state.turns.rise(&seat.claimant);
        }
        self.fill_seats(&mut state);
    }

    fn fill_seats(&self, state: &mut AdmissionState) {
        while state.seated.len() < self.seats
            && let Some((_, number)) = state.turns.next(&Passed::default())
            && let Some((claimant, call)) = state.turns.seat(number)
        {
            // The sequence counts as resting until it knows that it has the seat.
            state.seated.insert(number, Seat { claimant, rests: Some(Instant::now()) });
            // A receiver that is gone gives the seat back itself: `Place::drop` waits for this lock.
            let _ = call.send(());
        }
        self.load.send_replace(EngineLoad {
            running: state.seated.len(),
            waiting: state.turns.waiting(),
            paused: state.unseated.len(),
            ..EngineLoad::default()
        });
    }
}

impl Place {
    /// Waits for the seat, or for another one if it was given on; `false` if the engine closed first.
    pub async fn seated(&mut self) -> bool {
        loop {
            {
                let mut state = self.admission.state.lock();
                if let Some(seat) = state.seated.get_mut(&self.ticket.number) {
                    seat.rests = None;
                    return true;
                }
                if state.unseated.remove(&self.ticket.number) {
                    if self.admission.health().is_err() {
                        return false;
                    }
                    self.called = self.admission.queue(&mut state, &self.ticket);
                }
            }
            if (&mut self.called).await.is_err() {
                return false;
            }
        }
    }

    /// Nobody asks for the sequence's next output for now: its seat may be given on.
    pub(crate) fn rest(&self) {
        if let Some(seat) = self.admission.state.lock().seated.get_mut(&self.ticket.number) {
            seat.rests = Some(Instant::now());
        }
    }

    /// Whether the engine closed, so that the sequence should end now.
    pub(crate) fn is_dismissed(&self) -> bool {
        self.admission.health().is_err()
    }

    /// Resolves when the engine closes.
    pub async fn dismissed(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.admission.closed.subscribe().wait_for(|closed| *closed).await;
    }
}

/// Looks for seats to give on while somebody waits for one.
async fn lend(admission: Weak<Admission>, rest: Duration) {
    loop {
        tokio::time::sleep(rest).await;
        if !admission.upgrade().is_some_and(|admission| admission.lend_seats(rest)) {
            return;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.admission.leave(&self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn admission(seats: usize, max_waiting: usize) -> Arc<Admission> {
        Arc::new(Admission::new(seats, max_waiting))
    }

    /// A request of one sequence.
    fn enter(admission: &Arc<Admission>) -> Result<Place, EngineError> {
        let mut reservation = admission.reserve(None, 1)?;
        admission.enter(reservation.take().unwrap())
    }

    #[tokio::test]
    async fn seats_are_given_in_the_order_of_arrival() {
        let admission = admission(1, 8);
        let mut first = enter(&admission).unwrap();
        let mut second = enter(&admission).unwrap();
        let mut third = enter(&admission).unwrap();
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
        let first = enter(&admission).unwrap();
        let second = enter(&admission).unwrap();
        let mut third = enter(&admission).unwrap();
        assert_eq!(enter(&admission).unwrap_err(), EngineError::Overloaded);
        drop(second);
        drop(first);
        assert!(third.seated().await);
        assert_eq!(admission.load(), EngineLoad { running: 1, ..EngineLoad::default() });
    }

    #[tokio::test]
    async fn a_seat_that_was_called_but_never_taken_is_given_on() {
        let admission = admission(1, 8);
        let first = enter(&admission).unwrap();
        let second = enter(&admission).unwrap();
        let mut third = enter(&admission).unwrap();
        drop(first);
        drop(second);
        assert!(third.seated().await);
    }

    /// Seats that are lent, but not by themselves in the time of a test.
    fn lending(seats: usize) -> Arc<Admission> {
        Arc::new(Admission::new(seats, 8).lending_after(Duration::from_hours(1)))
    }

    #[tokio::test]
    async fn a_seat_that_rests_is_lent_to_whoever_waits_and_asked_back_for() {
        let admission = lending(1);
        let mut resting = enter(&admission).unwrap();
        assert!(resting.seated().await);
        let mut second = enter(&admission).unwrap();
        assert!(admission.lend_seats(Duration::ZERO));
        assert_eq!(second.seated().now_or_never(), None, "who is at work keeps the seat");
        resting.rest();
        assert!(admission.lend_seats(Duration::from_hours(1)));
        assert_eq!(second.seated().now_or_never(), None, "it did not rest for long");
        assert!(!admission.lend_seats(Duration::ZERO));
        assert_eq!(second.seated().now_or_never(), Some(true));
        assert_eq!(admission.load(), EngineLoad { running: 1, paused: 1, ..EngineLoad::default() });
        assert_eq!(resting.seated().now_or_never(), None);
        let third = enter(&admission).unwrap();
        drop(second);
        assert_eq!(resting.seated().now_or_never(), Some(true), "it asked before the third");
        drop((resting, third));
        assert_eq!(admission.load(), EngineLoad::default());
    }

    #[tokio::test]
    async fn nobody_gives_a_seat_on_that_nobody_waits_for() {
        let admission = lending(2);
        let [mut first, mut second] = [enter(&admission).unwrap(), enter(&admission).unwrap()];
        first.rest();
        assert!(!admission.lend_seats(Duration::ZERO));
        assert_eq!(admission.load(), EngineLoad { running: 2, ..EngineLoad::default() });
        assert!(second.seated().await && first.seated().await);
    }

    #[tokio::test]
    async fn who_gave_a_seat_on_is_sent_away_when_the_engine_closes() {
        let admission = lending(1);
        let mut resting = enter(&admission).unwrap();
        let mut second = enter(&admission).unwrap();
        assert!(!admission.lend_seats(Duration::ZERO));
        assert!(second.seated().await);
        admission.close();
        assert!(!resting.seated().await);
        drop((resting, second));
        admission.idle().await;
    }

    #[tokio::test]
    async fn closing_sends_the_queue_away_and_refuses_newcomers() {
        let admission = admission(1, 8);
        let mut first = enter(&admission).unwrap();
        let mut second = enter(&admission).unwrap();
        admission.close();
        first.dismissed().await;
        assert!(first.seated().await);
        assert!(!second.seated().await);
        assert_eq!(enter(&admission).unwrap_err(), EngineError::ShutDown);
        assert_eq!(admission.idle().now_or_never(), None);
        drop(first);
        admission.idle().await;
    }

    /// Takes the seats of `places` one after another, and gives each back; tells in which order they were called.
    fn order(mut places: Vec<(&'static str, Place)>) -> Vec<&'static str> {
        let mut order = Vec::new();
        while !places.is_empty() {
            let called = places.iter_mut().position(|(_, place)| place.seated().now_or_never() == Some(true));
            order.push(places.remove(called.expect("somebody is next")).0);
        }
        order
    }

    #[tokio::test]
    async fn requests_take_turns_and_parties_do() {
        let admission = admission(1, 100);
        let running = enter(&admission).unwrap();
        let mut places = Vec::new();
        let client = |name: &str| Some(Party::Client(name.into()));
        for (name, party, sequences) in
            [("a", client("A"), 2), ("b", client("A"), 1), ("many", None, 3), ("c", client("A"), 1), ("one", None, 1)]
        {
            let mut reservation = admission.reserve(party, sequences).unwrap();
            while let Some(ticket) = reservation.take() {
                places.push((name, admission.enter(ticket).unwrap()));
            }
        }
        drop(running);
        assert_eq!(order(places), ["a", "many", "one", "b", "many", "c", "many", "a"]);
    }
}
