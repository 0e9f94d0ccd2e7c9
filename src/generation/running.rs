//! Which generations run, and under which ids, so that somebody other than their client can end them; and whether more
//! may begin.
//!
//! Owns the registry and its door. Refuses to know what an id means, and who an owner is: the API chooses both. How
//! generations are ended is `ending`'s.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::{
    FutureExt, StreamExt,
    future::{join_all, select},
    stream,
};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::ending::{Ending, Unended};
use crate::engine::{AdapterId, EngineError, EngineOutput, FinishReason, Reservation, Ticket, TokenStream};

type Ids = Arc<[Arc<str>]>;

/// All generations, while they run or wait. Clones are the same registry.
#[derive(Debug, Clone, Default)]
pub struct RunningRequests {
    shared: Arc<Shared>,
}

/// Whether requests may begin to generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Door {
    /// They may.
    #[default]
    Open,
    /// They are refused.
    Refusing,
    /// They wait until they may, or until they are refused or ended.
    Queueing,
}

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<Table>,
    /// It changes, and is asked by those that enter, with the table locked: who finds it open is in the table before it
    /// closes.
    door: watch::Sender<Door>,
    /// How many prompts have generations that were let in and have not ended.
    present: watch::Sender<usize>,
    tickets: AtomicU64,
    /// Counts what the engine gave to all generations.
    outputs: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    /// Those of prompts that were let in; the others wait at the door.
    begun: HashSet<u64>,
    /// Whether nobody waits any more: the server stops.
    stops: bool,
    by_ticket: HashMap<u64, Entry>,
    /// A name may be in use more than once: clients choose ids, and one request may be several generations.
    by_name: HashMap<Name, Vec<Entry>>,
}

/// What generations are called by their owner; the same id of another owner is another name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Name {
    owner: Option<Arc<str>>,
    id: Arc<str>,
}

/// The generations of one prompt that have the same names.
#[derive(Debug, Clone)]
struct Entry {
    ticket: u64,
    /// The adapter that they go through.
    adapter: Option<AdapterId>,
    ending: Arc<Ending>,
}

/// The generations of one prompt, before they begin.
#[derive(Debug)]
pub(super) struct Entering<'a> {
    pub(super) owner: Option<&'a Arc<str>>,
    pub(super) ids: &'a Ids,
    pub(super) adapter: Option<AdapterId>,
    /// Their places in the engine, one for each.
    pub(super) places: Reservation,
}

/// Takes the generations out of the registry when all of them ended or their request is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    shared: Arc<Shared>,
    names: Vec<Name>,
    ticket: u64,
    ending: Arc<Ending>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut table = self.shared.table.lock();
        let Table { begun, by_ticket, by_name, .. } = &mut *table;
        begun.remove(&self.ticket);
        by_ticket.remove(&self.ticket);
        for name in &self.names {
            if let Some(entries) = by_name.get_mut(name) {
                entries.retain(|entry| entry.ticket != self.ticket);
                if entries.is_empty() {
                    by_name.remove(name);
                }
            }
        }
        self.shared.present.send_replace(begun.len());
    }
}

impl Name {
    fn new(owner: Option<&Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self { owner: owner.cloned(), id: id.into() }
    }
}

impl RunningRequests {
    /// Ends the generations that `owner` knows by `ids` with what they have, and says how many this call has ended. Ids that
    /// are unknown, or that belong to others, count as no generation.
    pub fn abort<'a>(&self, owner: Option<&Arc<str>>, ids: impl IntoIterator<Item = &'a str>) -> usize {
        let named = |table: &Table| {
            let entries = ids.into_iter().filter_map(|id| table.by_name.get(&Name::new(owner, id)));
            entries.flatten().cloned().collect()
        };
        self.end(named)
    }

    /// Ends the generations that anybody knows by `ids`, and says how many this call has ended.
    pub fn abort_any(&self, ids: &[String]) -> usize {
        let is_named = |name: &Name| ids.iter().any(|id| **id == *name.id);
        self.end(|table| {
            let named = table.by_name.iter().filter(|(name, _)| is_named(name));
            named.flat_map(|(_, entries)| entries).cloned().collect()
        })
    }

    /// Ends the generations that go through an adapter, whosever they are, and says how many this call has ended.
    pub fn abort_adapter(&self, id: AdapterId) -> usize {
        self.end(|table| table.by_ticket.values().filter(|entry| entry.adapter == Some(id)).cloned().collect())
    }

    /// Ends all generations, whosever they are and whether or not they have begun, and says how many this call has ended.
    pub fn abort_all(&self) -> usize {
        self.end(|table| table.by_ticket.values().cloned().collect())
    }

    /// Ends all generations but those that wait at the door, and says how many this call has ended.
    pub fn abort_begun(&self) -> usize {
        self.end(|table| {
            let begun = table.by_ticket.values().filter(|entry| table.begun.contains(&entry.ticket));
            begun.cloned().collect()
        })
    }

    /// Ends the generations of the entries that are chosen, except for those that were ended before. When this returns, the
    /// engine has none of them any more, and nobody awaits them, whether or not their clients read on.
    fn end(&self, chosen: impl FnOnce(&Table) -> Vec<Entry>) -> usize {
        let mut count = 0;
        let mut ended = {
            let table = self.shared.table.lock();
            chosen(&table)
        };
        // An entry that several ids name is ended once.
        ended.retain(|entry| {
            entry.ending.begin().is_some_and(|generations| {
                count += generations;
                true
            })
        });
        for entry in &ended {
            entry.ending.give_back();
        }
        let mut table = self.shared.table.lock();
        for entry in &ended {
            table.begun.remove(&entry.ticket);
        }
        self.shared.present.send_replace(table.begun.len());
        count
    }

    /// Opens the door, or closes it. Generations that have begun go on.
    pub fn set_door(&self, door: Door) {
        let table = self.shared.table.lock();
        self.shared.door.send_replace(if table.stops && door == Door::Queueing { Door::Refusing } else { door });
    }

    /// Refuses whoever waits at the door, now and from now on: the server stops, and nobody will open it.
    pub fn stop_queueing(&self) {
        let mut table = self.shared.table.lock();
        table.stops = true;
        self.shared.door.send_if_modified(|door| {
            let queues = *door == Door::Queueing;
            if queues {
                *door = Door::Refusing;
            }
            queues
        });
    }

    /// How often the engine gave something to a generation, whosever it is: this grows as long as it works and is read.
    pub fn outputs(&self) -> u64 {
        self.shared.outputs.load(Ordering::Relaxed)
    }

    /// Whether generations are left that were let in.
    pub fn has_begun(&self) -> bool {
        *self.shared.present.borrow() > 0
    }

    /// Waits until no generation is left that was let in.
    pub async fn settled(&self) {
        let mut present = self.shared.present.subscribe();
        // The sender is there as long as the registry.
        let _ = present.wait_for(|present| *present == 0).await;
    }

    /// Waits until the door is another than `Queueing`, or all of these were ended.
    pub(super) async fn admitted(&self, registrations: &[Arc<Registration>]) {
        let mut door = self.shared.door.subscribe();
        let opened = std::pin::pin!(door.wait_for(|door| *door != Door::Queueing));
        let ended = std::pin::pin!(join_all(registrations.iter().map(|registration| registration.ending.ended())));
        select(opened, ended).await;
    }

    /// Lets the generations of each of `prompts` be ended together by their owner, by any of its ids, from now on. They
    /// wait at the door until they are [let in](Self::admit).
    pub(super) fn register<'a>(&self, prompts: impl IntoIterator<Item = Entering<'a>>) -> Vec<Arc<Registration>> {
        let mut table = self.shared.table.lock();
        prompts.into_iter().map(|entering| self.enter(&mut table, entering)).collect()
    }

    /// Lets all of these in where the door is open; returns how it is.
    pub(super) fn admit(&self, registrations: &[Arc<Registration>]) -> Door {
        let mut table = self.shared.table.lock();
        let door = *self.shared.door.borrow();
        if door == Door::Open {
            let present = registrations.iter().filter(|registration| !registration.is_ended());
            table.begun.extend(present.map(|registration| registration.ticket));
            self.shared.present.send_replace(table.begun.len());
        }
        door
    }

    fn enter(&self, table: &mut Table, entering: Entering<'_>) -> Arc<Registration> {
        let Entering { owner, ids, adapter, places } = entering;
        let ending = Arc::new(Ending::new(places));
        let ticket = self.shared.tickets.fetch_add(1, Ordering::Relaxed);
        let names: Vec<Name> = ids.iter().map(|id| Name::new(owner, Arc::clone(id))).collect();
        let entry = Entry { ticket, adapter, ending: Arc::clone(&ending) };
        for name in &names {
            table.by_name.entry(name.clone()).or_default().push(entry.clone());
        }
        table.by_ticket.insert(ticket, entry);
        Arc::new(Registration { shared: Arc::clone(&self.shared), names, ticket, ending })
    }
}

impl Registration {
    /// Whether the generations were ended.
    pub(super) fn is_ended(&self) -> bool {
        self.ending.is_begun()
    }

    /// Starts the next one of the generations in its place, unless they were ended already.
    pub(super) fn register(self: &Arc<Self>, start: impl FnOnce(Ticket) -> TokenStream) -> TokenStream {
        let registered = (Arc::clone(self), Unended::new(&self.ending));
        let shared = Arc::clone(&self.shared);
        let outputs = self.ending.start(start).inspect(move |_| _ = shared.outputs.fetch_add(1, Ordering::Relaxed));
        let ending = Arc::clone(&self.ending);
        let end = stream::once(async move {
            // An engine that stops without a reason is not excused by this one.
            if ending.is_begun() {
                Ok(EngineOutput::Finished(FinishReason::Abort))
            } else {
                Err(EngineError::Failed("the generation ended without a reason".to_owned()))
            }
        });
        let ending = Arc::clone(&self.ending);
        let ended = async move { ending.ended().await };
        // The engine's stream is dropped, and so aborted, before the end is said.
        let outputs = outputs.take_until(ended.boxed()).chain(end);
        outputs.inspect(move |_| _ = &registered).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, EngineInfo, SampledToken, scripted::ScriptedEngine};

    fn ids(ids: &[&str]) -> Ids {
        ids.iter().map(|&id| Arc::from(id)).collect()
    }

    /// One token, then silence.
    fn stuck() -> TokenStream {
        let token = SampledToken { id: 1, logprob: 0.0, rank: 1, top_logprobs: Vec::new(), sampling_mask: None };
        stream::iter([Ok(EngineOutput::Token(token))]).chain(stream::pending()).boxed()
    }

    fn waiting(running: &RunningRequests, owner: Option<&Arc<str>>, names: &[&str], count: usize) -> Arc<Registration> {
        let engine = ScriptedEngine::hashed(EngineInfo::scripted(4, 64), vec![2]).with_seats(9, 9);
        let places = engine.reserve(None, count).unwrap();
        running.register([Entering { owner, ids: &ids(names), adapter: None, places }]).remove(0)
    }

    fn entered(running: &RunningRequests, owner: Option<&Arc<str>>, names: &[&str], count: usize) -> Arc<Registration> {
        let registration = waiting(running, owner, names, count);
        assert_eq!(running.admit(std::slice::from_ref(&registration)), Door::Open);
        registration
    }

    /// A generation alone.
    fn registered(running: &RunningRequests, names: &[&str], outputs: TokenStream) -> TokenStream {
        entered(running, None, names, 1).register(|_| outputs)
    }

    fn next(outputs: &mut TokenStream) -> Option<EngineOutput> {
        outputs.next().now_or_never().flatten().map(|output| output.expect("a stream without errors"))
    }

    #[test]
    fn an_aborted_generation_ends_with_what_it_has() {
        let running = RunningRequests::default();
        let mut outputs = registered(&running, &["a"], stuck());
        assert!(matches!(next(&mut outputs), Some(EngineOutput::Token(_))));
        assert_eq!(next(&mut outputs), None);
        assert_eq!(running.abort(None, ["a"]), 1);
        assert_eq!(next(&mut outputs), Some(EngineOutput::Finished(FinishReason::Abort)));
        assert_eq!(running.outputs(), 1, "the end did not come of the engine");
    }

    #[test]
    fn an_aborted_generation_leaves_the_engine_and_keeps_nobody_whether_or_not_it_is_read() {
        let running = RunningRequests::default();
        let dropped = Arc::new(());
        let token = Arc::clone(&dropped);
        let mut outputs = registered(&running, &["a"], stuck().inspect(move |_| _ = &token).boxed());
        assert!(running.has_begun() && Arc::strong_count(&dropped) == 2);
        assert_eq!((running.abort_all(), running.abort_all()), (1, 0));
        assert!(!running.has_begun() && running.settled().now_or_never().is_some());
        assert_eq!(Arc::strong_count(&dropped), 1, "the engine's stream is gone");
        assert_eq!(next(&mut outputs), Some(EngineOutput::Finished(FinishReason::Abort)));
    }

    #[test]
    fn every_generation_counts_once_and_only_those_that_are_named_end() {
        let running = RunningRequests::default();
        let mut first = registered(&running, &["a", "a-0"], stuck());
        let mut second = registered(&running, &["a", "a-1"], stuck());
        let mut other = registered(&running, &["b"], stuck());
        for outputs in [&mut first, &mut second, &mut other] {
            next(outputs);
        }
        assert_eq!(running.abort(None, ["a", "a-0", "unknown"]), 2);
        assert!(next(&mut first).is_some() && next(&mut second).is_some());
        assert_eq!(next(&mut other), None);
        assert_eq!((running.abort_all(), running.abort_all()), (1, 0), "who was ended before does not count again");
    }

    #[test]
    fn an_owner_ends_its_own_generations_only() {
        let running = RunningRequests::default();
        let [one, other] = ["one", "other"].map(|owner| Some(Arc::from(owner)));
        let owners: [Option<Arc<str>>; 3] = [one, other, None];
        let mut outputs =
            owners.each_ref().map(|owner| entered(&running, owner.as_ref(), &["a"], 1).register(|_| stuck()));
        for outputs in &mut outputs {
            next(outputs);
        }
        for (index, owner) in owners.iter().enumerate() {
            assert_eq!(running.abort(owner.as_ref(), ["a"]), 1);
            assert_eq!(next(&mut outputs[index]), Some(EngineOutput::Finished(FinishReason::Abort)));
            assert!(outputs[index + 1..].iter_mut().all(|outputs| next(outputs).is_none()));
        }
    }

    #[test]
    fn a_generation_that_is_dropped_is_forgotten() {
        let running = RunningRequests::default();
        let kept = registered(&running, &["a"], stuck());
        drop(registered(&running, &["a"], stuck()));
        assert_eq!(running.abort(None, ["a"]), 1);
        drop(kept);
        assert_eq!(running.abort_all(), 0);
        assert!(running.shared.table.lock().by_name.is_empty());
    }

    #[test]
    fn nobody_enters_by_a_closed_door_and_those_inside_go_on() {
        let running = RunningRequests::default();
        let mut inside = registered(&running, &[], stuck());
        for door in [Door::Refusing, Door::Queueing] {
            running.set_door(door);
            assert_eq!(running.admit(&[waiting(&running, None, &[], 1)]), door);
            assert!(running.settled().now_or_never().is_none());
        }
        let outside = [waiting(&running, None, &[], 1)];
        assert!(running.admitted(&outside).now_or_never().is_none());
        running.set_door(Door::Open);
        assert!(running.admitted(&outside).now_or_never().is_some());
        drop(outside);
        assert!(matches!(next(&mut inside), Some(EngineOutput::Token(_))));
        assert_eq!(running.abort_all(), 1, "generations without names end too");
        assert_eq!(next(&mut inside), Some(EngineOutput::Finished(FinishReason::Abort)));
        drop(inside);
        assert!(running.settled().now_or_never().is_some());
    }

    #[test]
    fn those_that_wait_at_the_door_are_ended_by_their_names_and_keep_nobody() {
        let running = RunningRequests::default();
        running.set_door(Door::Queueing);
        let outside = [waiting(&running, None, &["a"], 2), waiting(&running, None, &["b"], 1)];
        assert!(running.settled().now_or_never().is_some());
        assert_eq!((running.abort_begun(), running.abort(None, ["a"])), (0, 2));
        assert!(running.admitted(&outside).now_or_never().is_none(), "one of them still waits");
        assert!(running.admitted(&outside[..1]).now_or_never().is_some());
        assert_eq!((outside[0].is_ended(), outside[1].is_ended()), (true, false));
        assert_eq!(running.abort_all(), 1);
        assert!(running.admitted(&outside).now_or_never().is_some());
    }

    #[test]
    fn nobody_waits_at_the_door_of_a_server_that_stops() {
        let running = RunningRequests::default();
        let outside = [waiting(&running, None, &[], 1)];
        running.stop_queueing();
        assert_eq!(running.admit(&outside), Door::Open, "who may come in comes in");
        for _ in 0..2 {
            running.set_door(Door::Queueing);
            assert_eq!(running.admit(&outside), Door::Refusing);
        }
        let running = RunningRequests::default();
        running.set_door(Door::Queueing);
        let outside = [waiting(&running, None, &[], 1)];
        let mut admitted = std::pin::pin!(running.admitted(&outside));
        assert!(admitted.as_mut().now_or_never().is_none());
        running.stop_queueing();
        assert!(admitted.now_or_never().is_some());
        assert_eq!(running.admit(&outside), Door::Refusing);
    }

    #[test]
    fn an_engine_that_stops_without_a_reason_is_at_fault() {
        let running = RunningRequests::default();
        let mut outputs = registered(&running, &["a"], stream::empty().boxed());
        assert!(matches!(outputs.next().now_or_never(), Some(Some(Err(EngineError::Failed(_))))));
    }

    #[test]
    fn generations_that_did_not_start_are_ended_with_their_siblings() {
        let running = RunningRequests::default();
        let group = entered(&running, None, &["a"], 3);
        let mut first = group.register(|_| stuck());
        drop(group.register(|_| stuck()));
        assert!(next(&mut first).is_some());
        assert_eq!(running.abort(None, ["a"]), 2);
        assert_eq!(next(&mut first), Some(EngineOutput::Finished(FinishReason::Abort)));
        let mut last = group.register(|_| panic!("nothing starts any more"));
        assert_eq!(next(&mut last), Some(EngineOutput::Finished(FinishReason::Abort)));
        drop((first, last, group));
        assert_eq!(running.abort_all(), 0);
    }
}
