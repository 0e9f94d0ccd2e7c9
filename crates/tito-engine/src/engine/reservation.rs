//! The places of a request's sequences, taken together before any of them starts.
//!
//! Owns how many sequences are in an engine, whether they have started, and their numbers. Refuses to know who is next.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio::sync::watch;

use super::{
    EngineError,
    seat_queue::{Claimant, Party},
};

/// Counts the sequences that are in an engine, from their request to their end.
#[derive(Debug)]
pub(crate) struct Register {
    most: usize,
    present: AtomicUsize,
    unstarted: watch::Sender<usize>,
    next: AtomicU64,
}

/// Places for the sequences of one request. Those that are not taken are given back with it.
#[derive(Debug)]
pub struct Reservation {
    register: Arc<Register>,
    claimant: Claimant,
    arrived: Instant,
    unstarted: Range<u64>,
}

/// The place of one sequence, which is given back with it.
#[derive(Debug)]
pub struct Ticket {
    register: Arc<Register>,
    pub(crate) claimant: Claimant,
    /// The number of the sequence among all of the engine; later ones have greater numbers.
    pub(crate) number: u64,
    /// When the request came.
    pub arrived: Instant,
}

impl Register {
    /// The register of an engine that has room for `most` sequences, running and waiting.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let (present, unstarted) = (AtomicUsize::new(0), watch::Sender::new(0));
        Arc::new(Self { most, present, unstarted, next: AtomicU64::new(0) })
    }

    /// Takes places for all `sequences` of a request, or none.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        party: Option<Party>,
        sequences: usize,
    ) -> Result<Reservation, EngineError> {
        if sequences > self.most {
            return Err(EngineError::TooManySequences { sequences, most: self.most });
        }
        let room = |present: usize| present.checked_add(sequences).filter(|present| *present <= self.most);
        let counted = self.present.fetch_update(Ordering::AcqRel, Ordering::Acquire, room);
        counted.map_err(|_| EngineError::Overloaded)?;
        self.unstarted.send_modify(|unstarted| *unstarted += sequences);
        let first = self.next.fetch_add(sequences as u64, Ordering::Relaxed);
        Ok(Reservation {
            register: Arc::clone(self),
            claimant: Claimant::new(party, first),
            arrived: Instant::now(),
            unstarted: first..first + sequences as u64,
        })
    }

    /// Sequences that have a place and did not start yet: they wait, too.
    pub(crate) fn unstarted(&self) -> usize {
        *self.unstarted.borrow()
    }

    /// Tells when sequences start, or come that have not.
    #[cfg(any(test, feature = "internals"))]
    pub(super) fn watch_unstarted(&self) -> watch::Receiver<usize> {
        self.unstarted.subscribe()
    }

    /// Sequences that have a place.
    #[cfg(test)]
    pub(crate) fn present(&self) -> usize {
        self.present.load(Ordering::Acquire)
    }
}

impl Reservation {
    /// The place of the next sequence, in their order; `None` once all were taken.
    pub fn take(&mut self) -> Option<Ticket> {
        let number = self.unstarted.next()?;
        self.register.unstarted.send_modify(|unstarted| *unstarted -= 1);
        Some(Ticket {
            register: Arc::clone(&self.register),
            claimant: self.claimant.clone(),
            number,
            arrived: self.arrived,
        })
    }

    /// The first `sequences` of the places, as a reservation of their own; all, where there are no more.
    #[must_use]
    pub fn split_off(&mut self, sequences: usize) -> Self {
        let Range { start, end } = self.unstarted;
        let middle = end.min(start.saturating_add(sequences as u64));
        self.unstarted.start = middle;
        Self {
            register: Arc::clone(&self.register),
            claimant: self.claimant.clone(),
            arrived: self.arrived,
            unstarted: start..middle,
        }
    }

    /// How many places were not taken yet.
    pub fn unstarted(&self) -> usize {
        usize::try_from(self.unstarted.end - self.unstarted.start).unwrap_or(usize::MAX)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let unstarted = self.unstarted();
        self.register.unstarted.send_modify(|all| *all -= unstarted);
        self.register.present.fetch_sub(unstarted, Ordering::AcqRel);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.register.present.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequences_of_a_request_get_their_places_together_or_not_at_all() {
        let register = Register::new(5);
        let never = EngineError::TooManySequences { sequences: 6, most: 5 };
        assert_eq!(register.reserve(None, 6).unwrap_err(), never);
        let mut first = register.reserve(None, 3).unwrap();
        assert_eq!(register.reserve(None, 3).unwrap_err(), EngineError::Overloaded);
        let second = register.reserve(None, 2).unwrap();
        let ticket = first.take().unwrap();
        assert_eq!((register.unstarted(), register.present()), (4, 5));
        assert_eq!((ticket.number, ticket.claimant.request, second.claimant.request), (0, 0, 3));
        drop((first, second));
        assert_eq!((register.unstarted(), register.present()), (0, 1));
        drop(ticket);
        assert_eq!(register.present(), 0);
    }

    #[test]
    fn a_part_of_a_reservation_has_its_first_numbers_and_is_given_back_by_itself() {
        let register = Register::new(9);
        let mut rest = register.reserve(None, 5).unwrap();
        let mut first = rest.split_off(2);
        assert_eq!((first.unstarted(), rest.unstarted(), register.unstarted(), register.present()), (2, 3, 5, 5));
        assert_eq!([&mut rest, &mut first].map(|part| part.take().unwrap().number), [2, 0]);
        drop(first);
        assert_eq!((register.unstarted(), register.present()), (2, 2));
        assert_eq!((rest.split_off(9).unstarted(), rest.unstarted()), (2, 0));
    }

    #[test]
    fn numbers_do_not_depend_on_when_sequences_start() {
        let register = Register::new(9);
        let (mut first, mut second) = (register.reserve(None, 2).unwrap(), register.reserve(None, 2).unwrap());
        let tickets = [second.take(), first.take(), second.take(), first.take(), first.take()];
        let numbers = tickets.iter().map(|ticket| ticket.as_ref().map(|ticket| ticket.number)).collect::<Vec<_>>();
        assert_eq!(numbers, [Some(2), Some(0), Some(3), Some(1), None]);
    }
}
