//! Whoever follows what is told of blocks knows what the cache finds, and nothing else.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use futures::FutureExt;
use proptest::prelude::*;

use super::{super::*, new, scheduler};
use crate::{
    engine::{
        Adapter,
        cache_events::{self, CacheEvent, CacheEvents},
        native::kv_cache::BlockHash,
    },
    weights::peft::PeftAdapter,
};

/// A subscriber, who knows no more than what it was told.
#[derive(Default)]
struct Follower {
    /// The blocks that are there.
    there: BTreeMap<u64, Block>,
    /// Every block that ever was: blocks that are there may follow blocks that are not.
    all: HashMap<u64, Block>,
    /// How many batches came.
    batches: usize,
}

#[derive(Clone)]
struct Block {
    parent: Option<u64>,
    token_ids: Vec<TokenId>,
    adapter: Option<(u64, Arc<str>)>,
    salt: Option<Arc<str>>,
}

impl Follower {
    fn follow(&mut self, events: &mut CacheEvents) {
        while let Some(Some(batch)) = events.next().now_or_never() {
            self.batches += 1;
            batch.events.into_iter().for_each(|event| self.take(event));
        }
    }

    fn take(&mut self, event: CacheEvent) {
        match event {
            CacheEvent::Cleared => self.there.clear(),
            CacheEvent::Removed(hashes) => {
                for hash in hashes {
                    assert!(self.there.remove(&hash).is_some(), "was there");
                }
            }
            CacheEvent::Stored(stored) => {
                let mut parent = stored.parent;
                assert_eq!(stored.token_ids.len(), stored.hashes.len() * BLOCK_TOKENS);
                for ((hash, token_ids), keys) in
                    stored.hashes.iter().zip(stored.token_ids.chunks(BLOCK_TOKENS)).zip(&stored.keys)
                {
                    let (adapter, salt) = (stored.adapter.clone(), keys.salt.clone());
                    let block = Block { parent, token_ids: token_ids.to_vec(), adapter, salt };
                    assert!(self.there.insert(*hash, block.clone()).is_none(), "was not there");
                    self.all.insert(*hash, block);
                    parent = Some(*hash);
                }
            }
        }
    }

    /// The hash under which the cache finds a block, by what was told of it.
    fn hash_in_cache(&self, hash: u64, weight_version: u64) -> BlockHash {
        let block = &self.all[&hash];
        let before = if let Some(parent) = block.parent {
            self.hash_in_cache(parent, weight_version)
        } else {
            let adapter = block.adapter.as_ref().map(|(number, _)| *number);
            BlockHash::root(weight_version, adapter, block.salt.as_deref())
        };
        before.then(&block.token_ids)
    }

    /// Compares what is believed with what the cache finds.
    fn compare(&self, scheduler: &Scheduler, weight_version: u64) {
        for hash in self.there.keys() {
            let found = scheduler.cache.blocks.find(&self.hash_in_cache(*hash, weight_version));
            assert!(found.is_some(), "{hash} is told and not there");
        }
    }
}

fn telling(scheduler: Scheduler, bound: usize) -> (Scheduler, CacheEvents) {
    let (sender, events) = cache_events::channel(bound, BLOCK_TOKENS, || ());
    (scheduler.telling(Told::new(sender)), events)
}

#[derive(Debug, Clone)]
enum Action {
    Add {
        prompt: u32,
        length: usize,
        max_tokens: usize,
        adapter: Option<usize>,
        salted: bool,
    },
    Remove(u64),
    ChangeWeights(OnWeightsChange),
    Reset,
    /// Gives an adapter's name to another one.
    Replace(usize),
    Steps(usize),
    /// The subscriber reads all there is.
    Read,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..3_u32, 30..150_usize, 1..40_usize, prop::option::weighted(0.3, 0..2_usize), prop::bool::weighted(0.2))
            .prop_map(|(prompt, length, max_tokens, adapter, salted)| Action::Add { prompt, length, max_tokens, adapter, salted }),
        2 => (0..20_u64).prop_map(Action::Remove),
        1 => prop_oneof![
            2 => Just(Action::Reset),
            1 => Just(Action::ChangeWeights(OnWeightsChange::Recompute)),
            1 => Just(Action::ChangeWeights(OnWeightsChange::Reuse)),
        ],
        1 => (0..2_usize).prop_map(Action::Replace),
        6 => (1..30_usize).prop_map(Action::Steps),
        2 => Just(Action::Read),
    ]
}

fn adapter(number: usize) -> Arc<Adapter> {
    Adapter::new(["a", "b"][number], 1, PeftAdapter { modules: Vec::new() })
}

fn step(scheduler: &mut Scheduler, left: &mut BTreeMap<SequenceId, usize>) {
    let plan = scheduler.plan();
    scheduler.commit(&plan);
    for work in plan.work.iter().filter(|work| work.samples) {
        scheduler.push(work.id, 7, Vec::new());
        let tokens = left.get_mut(&work.id).unwrap();
        *tokens -= 1;
        if *tokens == 0 {
            scheduler.remove(work.id);
        }
    }
    scheduler.tell();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_follower_of_events_believes_what_the_cache_finds(
        actions in prop::collection::vec(action(), 1..60),
        blocks in 7..16_usize,
        // Now and then so few that events are lost all the time.
        bound in prop_oneof![1..3_usize, Just(1_000)],
    ) {
        let (mut scheduler, mut events) = telling(scheduler(blocks, 4, 64).with_adapters(2), bound);
        let mut follower = Follower::default();
        let mut adapters = [0, 1].map(adapter);
        let (mut next, mut weights, mut left) = (0, 0, BTreeMap::new());
        let mut replaced = false;
        for action in actions {
            match action {
                Action::Add { prompt, length, max_tokens, adapter, salted } => {
                    let prompt: Vec<TokenId> = (0..).take(length).map(|id| if id < 40 { 0 } else { id * prompt }).collect();
                    let adapter = adapter.map(|number| Arc::clone(&adapters[number]));
                    let salt = salted.then(|| "salt".into());
                    scheduler.add(NewSequence { salt, adapter, ..new(next, &prompt, max_tokens) });
                    left.insert(next, max_tokens);
                    next += 1;
                }
                Action::Remove(id) => _ = scheduler.remove(id),
                Action::ChangeWeights(change) => {
                    weights += 1;
                    scheduler.change_weights(weights, change);
                }
                Action::Reset => _ = scheduler.reset_prefix_cache(),
                Action::Replace(number) => {
                    let before = std::mem::replace(&mut adapters[number], adapter(number));
                    scheduler.forget_adapter(before.id());
                    replaced = true;
                }
                Action::Steps(steps) => (0..steps).for_each(|_| step(&mut scheduler, &mut left)),
                Action::Read => follower.follow(&mut events),
            }
            scheduler.tell();
        }
        // What was lost comes once the rest is read.
        for _ in 0..2 {
            follower.follow(&mut events);
            scheduler.tell();
        }
        follower.compare(&scheduler, weights);
        let found = scheduler.cache.blocks.known();
        prop_assert!(follower.there.len() <= found);
        prop_assert!(replaced || follower.there.len() == found, "{} of {found}", follower.there.len());
        for block in follower.there.values() {
            let is_live = |number| adapters.iter().any(|adapter| adapter.id().number() == number);
            prop_assert!(block.adapter.as_ref().is_none_or(|(number, _)| is_live(*number)), "an adapter that is gone");
        }
    }
}

#[test]
fn hashes_are_the_same_in_all_processes_and_differ_by_adapter_and_salt() {
    let mut updates = 1;
    let mut told = |make: &dyn Fn(NewSequence) -> NewSequence| {
        let (mut scheduler, mut events) = telling(scheduler(20, 8, 512).with_adapters(1), 9);
        // As after an update: what others are told does not say how many there were.
        scheduler.change_weights(updates, OnWeightsChange::Recompute);
        updates += 1;
        scheduler.add(make(new(0, &super::prompt(70), 9)));
        super::step(&mut scheduler);
        scheduler.tell();
        let mut follower = Follower::default();
        follower.follow(&mut events);
        assert_eq!(follower.batches, 1, "one for a step, with the news before it");
        follower.there.into_keys().collect::<Vec<u64>>()
    };
    let (base, again) = (told(&|new| new), told(&|new| NewSequence { id: 3, ..new }));
    assert_eq!(base, again);
    // Written down: another version, another processor and another day give the same.
    assert_eq!(base, [2_073_014_144_267_606_749, 16_541_478_537_925_733_860]);
    let salted = told(&|new| NewSequence { salt: Some("a".into()), ..new });
    let adapted = told(&|new| NewSequence { adapter: Some(adapter(0)), ..new });
    assert_eq!(adapted, told(&|new| NewSequence { adapter: Some(adapter(0)), ..new }), "another number, the same name");
    for (one, other) in [(&base, &salted), (&base, &adapted), (&salted, &adapted)] {
        assert!(one.iter().all(|hash| !other.contains(hash)));
    }
}

#[test]
fn blocks_of_a_sequence_come_in_one_event_and_nothing_is_told_twice() {
    let (mut scheduler, mut events) = telling(scheduler(20, 8, 512), 9);
    for id in 0..2 {
        scheduler.add(new(id, &super::prompt(100), 40));
        super::step(&mut scheduler);
        scheduler.tell();
    }
    let batch = events.next().now_or_never().flatten().unwrap();
    let [CacheEvent::Stored(stored)] = &batch.events[..] else { panic!("{batch:?}") };
    assert_eq!((stored.hashes.len(), stored.parent, stored.token_ids.len()), (3, None, 96));
    assert_eq!(stored.token_ids, super::prompt(96));
    assert!(events.next().now_or_never().is_none());
    // The next block follows the last one.
    let last = stored.hashes[2];
    while scheduler.running.get(0).unwrap().computed < 128 {
        super::step(&mut scheduler);
    }
    scheduler.tell();
    let batch = events.next().now_or_never().flatten().unwrap();
    let [CacheEvent::Stored(stored)] = &batch.events[..] else { panic!("{batch:?}") };
    assert_eq!((stored.hashes.len(), stored.parent), (1, Some(last)));
}
