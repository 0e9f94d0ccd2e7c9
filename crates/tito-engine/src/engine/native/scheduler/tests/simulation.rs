//! Whatever comes, every sequence computes on its own tokens only, and ends.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{
    super::*,
    memory::{CacheUse, Memory},
    new, with_states,
};
use crate::engine::seat_queue::{Claimant, Party};

#[derive(Debug, Clone)]
enum Action {
    Add {
        prompt: u32,
        length: usize,
        max_tokens: usize,
        scores: Option<usize>,
        party: Option<u8>,
        sequences: u64,
        salted: bool,
    },
    Remove(usize),
    ChangeWeights(OnWeightsChange),
    Reset,
    Pause(usize),
    Resume(usize),
    /// A step in which the keys and values of a sequence turn out to be broken.
    Break(usize),
    Steps(usize),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..3_u32, 1..150_usize, 1..60_usize, prop::option::weighted(0.1, 0..100_usize), prop::option::of(0..3_u8), 1..4_u64, prop::bool::weighted(0.2))
            .prop_map(|(prompt, length, max_tokens, scores, party, sequences, salted)| {
                Action::Add { prompt, length, max_tokens, scores, party, sequences, salted }
            }),
        1 => (0..20_usize).prop_map(Action::Remove),
        1 => prop_oneof![
            8 => Just(Action::Reset),
            1 => Just(Action::ChangeWeights(OnWeightsChange::Recompute)),
            1 => Just(Action::ChangeWeights(OnWeightsChange::Reuse)),
        ],
        2 => (0..20_usize).prop_map(Action::Pause),
        1 => (0..20_usize).prop_map(Action::Resume),
        1 => (0..5_usize).prop_map(Action::Break),
        6 => (1..30_usize).prop_map(Action::Steps),
    ]
}

/// A scheduler, its memory and what its sequences should be.
struct Simulation {
    scheduler: Scheduler,
    memory: Memory,
    tokens: BTreeMap<SequenceId, Vec<TokenId>>,
    lengths: BTreeMap<SequenceId, usize>,
    scores: BTreeMap<SequenceId, Scores>,
    salted: BTreeSet<SequenceId>,
    next: SequenceId,
    /// The oldest sequence that ran in the last step, unless it ended since.
    oldest: Option<SequenceId>,
}

/// A prompt that is scored.
struct Scores {
    from: usize,
    /// For each position of the prompt but the last, the weights that scored it last.
    computed_by: Vec<Option<u64>>,
}

impl Simulation {
    fn act(&mut self, action: &Action) {
        match *action {
            Action::Add { prompt, length, max_tokens, scores, party, sequences, salted } => {
                // Three families of prompts, so that many begin alike.
                let token_ids: Vec<TokenId> =
                    (0..).take(length).map(|id| if id < 40 { 0 } else { id * prompt }).collect();
                let claimant = Claimant::new(party.map(|party| Party::Client(party.to_string().into())), self.next);
                for id in self.next..self.next + sequences {
                    let claimant = claimant.clone();
                    let scores_from = scores.filter(|from| from + 1 < length);
                    self.scores
                        .extend(scores_from.map(|from| (id, Scores { from, computed_by: vec![None; length - 1] })));
                    let salt = salted.then(|| "salt".into());
                    self.salted.extend(salted.then_some(id));
                    self.scheduler.add(NewSequence { claimant, salt, scores_from, ..new(id, &token_ids, max_tokens) });
                    self.lengths.insert(id, length + max_tokens);
                    self.tokens.insert(id, token_ids.clone());
                }
                self.next += sequences;
            }
            Action::Remove(index) => {
                if let Some(id) = self.tokens.keys().nth(index).copied() {
                    self.end(id);
                }
            }
            Action::ChangeWeights(change) => {
                self.memory.weight_version += 1;
                self.oldest = None;
                self.scheduler.change_weights(self.memory.weight_version, change);
            }
            Action::Reset => _ = self.scheduler.reset_prefix_cache(),
            Action::Pause(index) => {
                if let Some(id) = self.nth(index) {
                    self.scheduler.pause(id);
                    self.oldest = self.oldest.filter(|oldest| *oldest != id);
                }
            }
            Action::Resume(index) => self.nth(index).into_iter().for_each(|id| self.scheduler.resume(id)),
            Action::Break(index) => _ = self.step(Some(index)),
            Action::Steps(steps) => (0..steps).for_each(|_| _ = self.step(None)),
        }
    }

    fn nth(&self, index: usize) -> Option<SequenceId> {
        self.tokens.keys().nth(index).copied()
    }

    fn end(&mut self, id: SequenceId) {
        assert!(self.scheduler.remove(id));
        self.tokens.remove(&id);
        self.oldest = self.oldest.filter(|oldest| *oldest != id);
    }

    /// Computes a step, in which one of its sequences may end as broken, and answers how many tokens it had.
    fn step(&mut self, broken: Option<usize>) -> usize {
        let plan = self.scheduler.plan();
        let tokens: usize = plan.work.iter().map(|work| work.token_ids.len()).sum();
        assert!(tokens <= self.scheduler.bounds.max_num_batched_tokens);
        assert!(self.scheduler.running.is_sorted_by_key(|sequence| sequence.id));
        let oldest = self.scheduler.running.first().map(|sequence| sequence.id);
        assert!(self.oldest.is_none_or(|before| oldest.is_some_and(|oldest| oldest <= before)), "the oldest gave way");
        self.oldest = oldest;
        let has_states = self.scheduler.cache.has_states();
        let kind = |id| CacheUse { reuses: self.scheduler.reuses_older_keys(id), salted: self.salted.contains(&id) };
        self.memory.run(&plan, &self.tokens, has_states, kind);
        let broken = broken.and_then(|index| plan.work.get(index)).map(|work| work.id);
        if let Some(id) = broken {
            self.end(id);
        }
        self.scheduler.commit(&plan);
        for work in &plan.work {
            for (row, _) in &work.scores {
                let scores = self.scores.get_mut(&work.id).unwrap();
                scores.computed_by[work.first + row] = Some(self.memory.weight_version);
            }
        }
        for work in plan.work.iter().filter(|work| work.samples && Some(work.id) != broken) {
            // With its first token, a prompt is scored as far as it was asked for, and with the weights of that token.
            if let Some(Scores { from, computed_by }) = self.scores.remove(&work.id) {
                let (before, asked) = computed_by.split_at(from);
                assert!(before.iter().all(Option::is_none), "nobody asked for these");
                assert!(asked.iter().all(|version| *version == Some(self.memory.weight_version)));
            }
            let tokens = self.tokens.get_mut(&work.id).unwrap();
            let token = (work.id % 3) as TokenId;
            tokens.push(token);
            if tokens.len() == self.lengths[&work.id] {
                self.end(work.id);
            } else {
                self.scheduler.push(work.id, token, Vec::new());
            }
        }
        plan.work.iter().map(|work| work.token_ids.len()).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_sequence_computes_on_its_own_tokens_only_and_ends(
        actions in prop::collection::vec(action(), 1..40),
        blocks in 7..16_usize,
        slots in prop_oneof![Just(0), 2..4_usize, 4..12_usize],
        max_num_seqs in 1..6_usize,
        budget in 1..100_usize,
    ) {
        let scheduler = with_states(blocks, slots, max_num_seqs, budget);
        let mut simulation = Simulation {
            scheduler,
            memory: Memory::new(),
            tokens: BTreeMap::new(),
            lengths: BTreeMap::new(),
            scores: BTreeMap::new(),
            salted: BTreeSet::new(),
            next: 0,
            oldest: None,
        };
        for action in &actions {
            simulation.act(action);
        }
        let all: Vec<SequenceId> = simulation.tokens.keys().copied().collect();
        for id in all {
            simulation.scheduler.resume(id);
        }
        let mut idle = 0;
        while !simulation.tokens.is_empty() {
            idle = if simulation.step(None) == 0 { idle + 1 } else { 0 };
            prop_assert!(idle < 3, "nothing moves");
        }
        prop_assert_eq!((simulation.scheduler.held_blocks(), simulation.scheduler.load()), (0, (0, 0)));
        prop_assert!(simulation.scheduler.reset_prefix_cache(), "no slot is held either");
    }
}
