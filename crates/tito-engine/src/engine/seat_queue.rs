//! Who of those that wait is next: parties take turns, then the requests of a party, then the sequences of a request.
//!
//! Owns the order, and who has so many seats that one of them is due to somebody else. Refuses to know what a seat is,
//! and what is done in it.
//!
//! Seats are given a *turn* at a time: some few in a row to the same request, so that the samples of a group run
//! together, as they share their prompt. Whoever had a turn goes to the end of the line, and whoever sits in more than a
//! turn of seats waits for all that sit in less. So nobody waits for ever: before one that waits gets its turn, each
//! other one gets no more than one.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Most seats of a turn: groups of rollouts are rarely larger.
const MOST_SEATS_OF_A_TURN: usize = 16;
/// A turn is at most this part of all seats.
const TURNS_AT_A_TIME: usize = 16;
/// Tokens of prompts of a turn: most prompts are computed in one.
pub(crate) const TOKENS_OF_A_TURN: usize = 2048;

/// Who shares an engine evenly with all others, whatever the number of its requests and sequences.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Party {
    /// A client that is known by its key.
    Client(Arc<str>),
    /// A session.
    Session(Arc<str>),
    /// A request of nobody that is known, by the number of its first sequence.
    Request(u64),
}

/// Who claims a seat: sequences of one request of one party.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claimant {
    /// Who takes turns with others.
    pub(crate) party: Party,
    /// Which of the party's requests it is, by the number of its first sequence.
    pub(crate) request: u64,
}

impl Claimant {
    /// A request as a claimant; `party` is `None` where nobody knows who sent it.
    pub(crate) fn new(party: Option<Party>, request: u64) -> Self {
        Self { party: party.unwrap_or(Party::Request(request)), request }
    }
}

/// Who waits, and how many seats everybody has. Sequences are known by their numbers, later ones by greater numbers.
#[derive(Debug)]
pub(crate) struct SeatQueue<T> {
    /// Seats of a turn.
    turn: usize,
    /// The end of the line.
    end: u64,
    parties: HashMap<Party, Queue<T>>,
    /// Where each of those that wait queues up.
    waiting: HashMap<u64, Claimant>,
}

/// What a party has in the engine.
#[derive(Debug)]
struct Queue<T> {
    seats: Seats,
    requests: BTreeMap<u64, Sequences<T>>,
}

/// What a request has in the engine.
#[derive(Debug)]
struct Sequences<T> {
    seats: Seats,
    waiting: BTreeMap<u64, T>,
}

/// The seats of a party or a request, and where it stands in the lines for more of them and for its prompts.
#[derive(Debug)]
struct Seats {
    taken: usize,
    line: Standing,
    prompts: Standing,
}

/// A place in a line.
#[derive(Debug)]
struct Standing {
    /// Lower ones are first.
    place: u64,
    /// How much was given since.
    given: usize,
}

impl Standing {
    /// A place at the `end` of the line.
    fn last(end: &mut u64) -> Self {
        *end += 1;
        Self { place: *end, given: 0 }
    }

    /// Gives some more; after a `turn` of it others are first.
    fn give(&mut self, amount: usize, turn: usize, end: &mut u64) {
        self.given += amount;
        if self.given >= turn {
            *self = Self::last(end);
        }
    }
}

impl Seats {
    /// The place of somebody who comes to the `end` of the line and has no seat yet.
    fn none(end: &mut u64) -> Self {
        Self { taken: 0, line: Standing::last(end), prompts: Standing::last(end) }
    }

    fn take(&mut self, turn: usize, end: &mut u64) {
        self.taken += 1;
        self.line.give(1, turn, end);
    }
}

/// Who was let pass for now: of each request, the sequences up to one.
#[derive(Debug, Default)]
pub(crate) struct Passed(HashMap<u64, u64>);

impl Passed {
    /// Lets those after sequence `number` of `request` pass it.
    pub(crate) fn pass(&mut self, request: u64, number: u64) {
        self.0.insert(request, number);
    }

    /// Lets everybody pass all sequences of `request`.
    pub(crate) fn pass_all(&mut self, request: u64) {
        self.pass(request, u64::MAX - 1);
    }

    /// The first number of `request` that was not let pass.
    fn first(&self, request: u64) -> u64 {
        self.0.get(&request).map_or(0, |number| number + 1)
    }
}

impl<T> SeatQueue<T> {
    /// Turns in front of an engine with so many `seats`.
    pub(crate) fn new(seats: usize) -> Self {
        let turn = (seats / TURNS_AT_A_TIME).clamp(1, MOST_SEATS_OF_A_TURN);
        Self { turn, end: 0, parties: HashMap::new(), waiting: HashMap::new() }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// All that wait.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let requests = self.parties.values().flat_map(|queue| queue.requests.values());
        requests.flat_map(|sequences| sequences.waiting.values())
    }

    /// The same, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let requests = self.parties.values_mut().flat_map(|queue| queue.requests.values_mut());
        requests.flat_map(|sequences| sequences.waiting.values_mut())
    }

    /// How many requests there are, running and waiting.
    pub(crate) fn requests(&self) -> usize {
        self.parties.values().map(|queue| queue.requests.len()).sum()
    }

    /// How many parties there are, running and waiting.
    pub(crate) fn parties(&self) -> usize {
        self.parties.len()
    }

    /// One that waits.
    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        let claimant = self.waiting.get(&number)?;
        self.parties.get(&claimant.party)?.requests.get(&claimant.request)?.waiting.get(&number)
    }

    /// Likewise.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let claimant = self.waiting.get(&number)?;
        self.parties.get_mut(&claimant.party)?.requests.get_mut(&claimant.request)?.waiting.get_mut(&number)
    }

    /// Queues up.
    pub(crate) fn wait(&mut self, claimant: Claimant, number: u64, item: T) {
        let end = &mut self.end;
        let none = || Queue { seats: Seats::none(end), requests: BTreeMap::new() };
        let queue = self.parties.entry(claimant.party.clone()).or_insert_with(none);
        let none = || Sequences { seats: Seats::none(end), waiting: BTreeMap::new() };
        queue.requests.entry(claimant.request).or_insert_with(none).waiting.insert(number, item);
        self.waiting.insert(number, claimant);
    }

    /// Who is next, but for those that were let pass.
    pub(crate) fn next(&self, passed: &Passed) -> Option<(&Claimant, u64)> {
        // No two stand at the same place.
        let order = |seats: &Seats| (seats.taken / self.turn, seats.line.place);
        let parties = self.parties.values().filter_map(|queue| {
            let requests = queue.requests.iter().filter_map(|(request, sequences)| {
                let (number, _) = sequences.waiting.range(passed.first(*request)..).next()?;
                Some((order(&sequences.seats), *number))
            });
            requests.min().map(|(_, number)| (order(&queue.seats), number))
        });
        let (_, number) = parties.min()?;
        self.waiting.get(&number).map(|claimant| (claimant, number))
    }

    /// Gives a seat to one that waits.
    pub(crate) fn seat(&mut self, number: u64) -> Option<(Claimant, T)> {
        let claimant = self.waiting.remove(&number)?;
        let queue = self.parties.get_mut(&claimant.party)?;
        let sequences = queue.requests.get_mut(&claimant.request)?;
        let item = sequences.waiting.remove(&number)?;
        queue.seats.take(self.turn, &mut self.end);
        sequences.seats.take(self.turn, &mut self.end);
        Some((claimant, item))
    }

    /// Takes a seat back.
    pub(crate) fn rise(&mut self, claimant: &Claimant) {
        let Some(queue) = self.parties.get_mut(&claimant.party) else { return };
        queue.seats.taken = queue.seats.taken.saturating_sub(1);
        if let Some(sequences) = queue.requests.get_mut(&claimant.request) {
            sequences.seats.taken = sequences.seats.taken.saturating_sub(1);
        }
        self.forget(claimant);
    }

    /// Takes one that waits out of the queue.
    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let claimant = self.waiting.remove(&number)?;
        let item = self.parties.get_mut(&claimant.party)?.requests.get_mut(&claimant.request)?.waiting.remove(&number);
        self.forget(&claimant);
        item
    }

    /// Takes all that wait out of the queue.
    pub(crate) fn clear(&mut self) {
        for number in self.waiting.keys().copied().collect::<Vec<_>>() {
            self.remove(number);
        }
    }

    /// Nothing is kept of who has nothing here.
    fn forget(&mut self, claimant: &Claimant) {
        let Some(queue) = self.parties.get_mut(&claimant.party) else { return };
        let gone = |sequences: &Sequences<T>| sequences.seats.taken == 0 && sequences.waiting.is_empty();
        if queue.requests.get(&claimant.request).is_some_and(gone) {
            queue.requests.remove(&claimant.request);
        }
        if queue.requests.is_empty() {
            self.parties.remove(&claimant.party);
        }
    }

    /// Takes note of `tokens` tokens of a prompt that are computed.
    pub(crate) fn compute(&mut self, claimant: &Claimant, tokens: usize) {
        let Some(queue) = self.parties.get_mut(&claimant.party) else { return };
        queue.seats.prompts.give(tokens, TOKENS_OF_A_TURN, &mut self.end);
        let Some(sequences) = queue.requests.get_mut(&claimant.request) else { return };
        sequences.seats.prompts.give(tokens, TOKENS_OF_A_TURN, &mut self.end);
    }

    /// Whose prompt is computed first, by the party's place in line and then the request's.
    pub(crate) fn prompt_place(&self, claimant: &Claimant) -> (u64, u64) {
        let queue = self.parties.get(&claimant.party);
        let request = queue.and_then(|queue| queue.requests.get(&claimant.request));
        let place = |seats: Option<&Seats>| seats.map_or(u64::MAX, |seats| seats.prompts.place);
        (place(queue.map(|queue| &queue.seats)), place(request.map(|request| &request.seats)))
    }

    /// How many seats the party and the request have, in turns: who has the most gives way first, and last of all who
    /// has but one.
    pub(crate) fn excess(&self, claimant: &Claimant) -> (usize, usize) {
        let queue = self.parties.get(&claimant.party);
        let party = queue.map_or(0, |queue| queue.seats.taken);
        let request =
            queue.and_then(|queue| queue.requests.get(&claimant.request)).map_or(0, |request| request.seats.taken);
        let turns = |running: usize| if running > 1 { 1 + (running - 1) / self.turn } else { 0 };
        (turns(party), turns(request))
    }

    /// The request that one of `claimant` may take a seat from, if it has too few of them beside others that have many:
    /// none beside two, or less than a turn beside more than a turn. Another party's before one of its own.
    pub(crate) fn owing(&self, claimant: &Claimant) -> Option<Claimant> {
        let owes = |few: usize, many: usize| (few == 0 && many > 1) || (few < self.turn && many > self.turn);
        let own = self.parties.get(&claimant.party)?;
        let others = self
            .parties
            .iter()
            .filter(|(party, queue)| **party != claimant.party && owes(own.seats.taken, queue.seats.taken));
        let greatest = others.max_by_key(|(_, queue)| (queue.seats.taken, queue.youngest_request()));
        if let Some((party, queue)) = greatest {
            let requests = queue.requests.iter().filter(|(_, sequences)| sequences.seats.taken > 0);
            let (request, _) = requests.max_by_key(|(request, sequences)| (sequences.seats.taken, **request))?;
            return Some(Claimant { party: party.clone(), request: *request });
        }
        let running = own.requests.get(&claimant.request).map_or(0, |sequences| sequences.seats.taken);
        let siblings = own
            .requests
            .iter()
            .filter(|(request, sequences)| **request != claimant.request && owes(running, sequences.seats.taken));
        let (request, _) = siblings.max_by_key(|(request, sequences)| (sequences.seats.taken, **request))?;
        Some(Claimant { party: claimant.party.clone(), request: *request })
    }
}

impl<T> Queue<T> {
    fn youngest_request(&self) -> Option<u64> {
        self.requests.keys().next_back().copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claimant(party: u8, request: u64) -> Claimant {
        Claimant::new(Some(Party::Client(party.to_string().into())), request)
    }

    /// Seats all that wait, one after another, each rising before the next one sits down.
    fn order(turns: &mut SeatQueue<()>) -> Vec<u64> {
        let mut order = Vec::new();
        while let Some((_, number)) = turns.next(&Passed::default()) {
            let (claimant, ()) = turns.seat(number).unwrap();
            turns.rise(&claimant);
            order.push(number);
        }
        assert!(turns.parties.is_empty() && turns.waiting.is_empty(), "nothing is kept of who is gone");
        order
    }

    #[test]
    fn with_one_seat_parties_alternate_and_so_do_their_requests() {
        let mut turns = SeatQueue::new(1);
        for (number, party, request) in [(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 3), (4, 1, 4), (5, 1, 4)] {
            turns.wait(claimant(party, request), number, ());
        }
        assert_eq!(order(&mut turns), [0, 4, 3, 5, 1, 2]);
    }

    #[test]
    fn small_requests_are_served_in_the_order_of_their_arrival() {
        let mut turns = SeatQueue::new(256);
        for number in 0..60 {
            turns.wait(Claimant::new(None, number - number % 6), number, ());
        }
        assert_eq!(order(&mut turns), (0..60).collect::<Vec<_>>());
    }

    #[test]
    fn a_seat_is_owed_to_who_has_none_by_who_has_several() {
        let mut turns = SeatQueue::new(32);
        for number in 0..5 {
            turns.wait(claimant(0, 0), number, ());
            turns.seat(number);
        }
        turns.wait(claimant(1, 5), 5, ());
        assert_eq!(turns.owing(&claimant(1, 5)), Some(claimant(0, 0)));
        turns.seat(5);
        turns.wait(claimant(1, 5), 6, ());
        assert_eq!(turns.owing(&claimant(1, 5)), Some(claimant(0, 0)), "less than a turn beside more than a turn");
        (0..3).for_each(|_| turns.rise(&claimant(0, 0)));
        assert_eq!(turns.owing(&claimant(1, 5)), None, "two seats are a turn");
        turns.wait(claimant(1, 7), 7, ());
        turns.seat(6);
        assert_eq!(turns.owing(&claimant(1, 7)), Some(claimant(1, 5)), "a request owes its sibling");
        assert_eq!((turns.excess(&claimant(0, 0)), turns.excess(&claimant(2, 9))), ((1, 1), (0, 0)));
    }

    /// What happens at the door of an engine.
    #[derive(Debug, Clone)]
    enum Action {
        Wait { party: u8, request: u64 },
        Rise(usize),
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            3 => (0..5_u8, 0..3_u64).prop_map(|(party, request)| Action::Wait { party, request }),
            2 => (0..64_usize).prop_map(Action::Rise),
        ]
    }

    proptest! {
        /// Nobody who sits in less than a turn of seats waits while somebody else gets more than a turn of them.
        #[test]
        fn no_party_is_passed_by(actions in prop::collection::vec(action(), 1..400), seats in 1..64_usize) {
            let mut turns: SeatQueue<()> = SeatQueue::new(seats);
            let mut seated: Vec<Claimant> = Vec::new();
            // How many seats each party got while another one, which sat in less than a turn of them, waited.
            let mut passed: HashMap<(u8, u8), usize> = HashMap::new();
            let party_of = |claimant: &Claimant| match &claimant.party {
                Party::Client(name) => name.parse::<u8>().unwrap(),
                _ => unreachable!(),
            };
            for (number, action) in (1_000..).zip(actions) {
                match action {
                    Action::Wait { party, request } => {
                        turns.wait(claimant(party, u64::from(party) * 3 + request), number, ());
                    }
                    Action::Rise(index) if !seated.is_empty() => {
                        let index = index % seated.len();
                        turns.rise(&seated.swap_remove(index));
                    }
                    Action::Rise(_) => {}
                }
                while seated.len() < seats && let Some((_, number)) = turns.next(&Passed::default()) {
                    let (claimant, ()) = turns.seat(number).unwrap();
                    let served = party_of(&claimant);
                    seated.push(claimant);
                    for other in 0..5 {
                        passed.remove(&(other, served));
                        let waits = turns.waiting.values().any(|claimant| party_of(claimant) == other);
                        let sits = seated.iter().filter(|claimant| party_of(claimant) == other).count();
                        if other == served || !waits || sits >= turns.turn {
                            passed.remove(&(served, other));
                            continue;
                        }
                        let count = passed.entry((served, other)).or_insert(0);
                        *count += 1;
                        prop_assert!(*count <= turns.turn, "{served} passed {other} {count} times");
                    }
                }
                prop_assert_eq!(turns.waiting() > 0, turns.next(&Passed::default()).is_some());
            }
        }
    }
}
