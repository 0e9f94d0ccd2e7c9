//! The scheduler against blocks that remember what was computed into them.

mod fairness;

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;
use crate::engine::turns::{Claimant, Party};

/// What a slot holds: every token from the start of its sequence to its own, the weights, and whether they read what
/// other weights had written.
type Content = (u64, bool, Vec<TokenId>);

/// Stands in for the model: refuses to compute on slots that hold anything but the sequence's own tokens.
struct Memory {
    slots: HashMap<(BlockId, usize), Content>,
    weight_version: u64,
}

impl Memory {
    fn new() -> Self {
        Self { slots: HashMap::new(), weight_version: 0 }
    }

    /// `reuses` says which sequences may read what older weights wrote.
    fn run(
        &mut self,
        plan: &Plan,
        sequences: &BTreeMap<SequenceId, Vec<TokenId>>,
        reuses: impl Fn(SequenceId) -> bool,
    ) {
        for (from, to) in &plan.copies {
            for slot in 0..BLOCK_TOKENS {
                match self.slots.get(&(*from, slot)).cloned() {
                    Some(content) => self.slots.insert((*to, slot), content),
                    None => self.slots.remove(&(*to, slot)),
                };
            }
        }
        // All keys and values of a step are written before any is read.
        for work in &plan.work {
            let tokens = &sequences[&work.id];
            assert_eq!(work.token_ids, tokens[work.first..][..work.token_ids.len()]);
            for position in work.first..work.first + work.token_ids.len() {
                let place = (work.blocks[position / BLOCK_TOKENS], position % BLOCK_TOKENS);
                let content = (self.weight_version, reuses(work.id), tokens[..=position].to_vec());
                self.slots.insert(place, content);
            }
        }
        for work in &plan.work {
            let tokens = &sequences[&work.id];
            for position in 0..work.first + work.token_ids.len() {
                let place = (work.blocks[position / BLOCK_TOKENS], position % BLOCK_TOKENS);
                let (version, mixed, held) = &self.slots[&place];
                assert_eq!(*held, tokens[..=position], "{work:?} at {position}");
                let is_own = *version == self.weight_version && !mixed;
                assert!(is_own || reuses(work.id), "{work:?} at {position} reads what version {version} wrote");
            }
        }
    }
}

pub(super) fn scheduler(blocks: usize, max_num_seqs: usize, max_num_batched_tokens: usize) -> Scheduler {
    Scheduler::new(Bounds { max_num_seqs, max_num_batched_tokens }, blocks)
}

pub(super) fn new(id: SequenceId, prompt: &[TokenId], max_tokens: usize) -> NewSequence {
    NewSequence {
        id,
        claimant: Claimant::new(None, id),
        prompt_token_ids: prompt.to_vec(),
        max_tokens,
        salt: None,
        scores_from: None,
    }
}

/// Plans, computes nothing, and samples token 7 where a token is due.
pub(super) fn step(scheduler: &mut Scheduler) -> Plan {
    let plan = scheduler.plan();
    scheduler.commit(&plan);
    for work in plan.work.iter().filter(|work| work.samples) {
        scheduler.push(work.id, 7);
    }
    plan
}

pub(super) fn shares(plan: &Plan) -> Vec<(SequenceId, usize, usize)> {
    plan.work.iter().map(|work| (work.id, work.first, work.token_ids.len())).collect()
}

pub(super) fn prompt(length: usize) -> Vec<TokenId> {
    (0..).take(length).collect()
}

#[test]
fn a_long_prompt_is_computed_in_pieces_while_others_go_on() {
    let mut scheduler = scheduler(20, 8, 16);
    scheduler.add(new(0, &[1, 2], 9));
    assert_eq!(shares(&step(&mut scheduler)), [(0, 0, 2)]);
    scheduler.add(new(1, &prompt(40), 9));
    assert_eq!(shares(&step(&mut scheduler)), [(0, 2, 1), (1, 0, 15)]);
    assert_eq!(shares(&step(&mut scheduler)), [(0, 3, 1), (1, 15, 15)]);
    let last = step(&mut scheduler);
    assert_eq!(shares(&last), [(0, 4, 1), (1, 30, 10)]);
    assert!(last.work[1].samples);
    assert_eq!(shares(&step(&mut scheduler)), [(0, 5, 1), (1, 40, 1)]);
}

#[test]
fn the_samples_of_a_group_share_their_prompt_and_copy_its_last_block() {
    let mut scheduler = scheduler(20, 8, 512);
    for id in 0..3 {
        scheduler.add(new(id, &prompt(70), 9));
    }
    assert_eq!(shares(&step(&mut scheduler)), [(0, 0, 70)]);
    let second = step(&mut scheduler);
    assert_eq!(shares(&second), [(0, 70, 1), (1, 69, 1), (2, 69, 1)]);
    assert_eq!(second.admitted, [(1, 69), (2, 69)]);
    let [first, others @ ..] = &second.work[..] else { panic!() };
    for (other, copy) in others.iter().zip(&second.copies) {
        assert_eq!(other.blocks[..2], first.blocks[..2]);
        assert_ne!(other.blocks[2], first.blocks[2]);
        assert_eq!(copy.1, other.blocks[2]);
    }
    assert_eq!(scheduler.held_blocks(), 5);
}

#[test]
fn prompts_whose_last_block_begins_with_their_last_token_do_not_wait_for_each_other() {
    for length in [1, 33] {
        let mut scheduler = scheduler(20, 8, 512);
        (0..4).for_each(|id| scheduler.add(new(id, &prompt(length), 9)));
        step(&mut scheduler);
        assert_eq!(step(&mut scheduler).work.len(), 4, "{length}");
    }
}

#[test]
fn a_turn_pays_for_its_new_tokens_only() {
    let mut scheduler = scheduler(20, 8, 512);
    scheduler.add(new(0, &prompt(100), 9));
    step(&mut scheduler);
    scheduler.remove(0);
    assert_eq!(scheduler.held_blocks(), 0);
    scheduler.add(new(1, &prompt(130), 9));
    let plan = step(&mut scheduler);
    assert_eq!(shares(&plan), [(1, 96, 34)]);
    assert_eq!(plan.admitted, [(1, 96)]);
}

#[test]
fn the_same_whole_blocks_again_compute_one_token() {
    let mut scheduler = scheduler(20, 8, 512);
    scheduler.add(new(0, &prompt(64), 9));
    step(&mut scheduler);
    scheduler.remove(0);
    scheduler.add(new(1, &prompt(64), 9));
    let plan = step(&mut scheduler);
    assert_eq!(shares(&plan), [(1, 63, 1)]);
    assert_eq!(plan.copies.len(), 1);
}

#[test]
fn salts_and_scored_prompts_share_nothing() {
    let mut scheduler = scheduler(20, 8, 512);
    scheduler.add(new(0, &prompt(64), 9));
    step(&mut scheduler);
    scheduler.add(NewSequence { salt: Some("a".into()), ..new(1, &prompt(64), 9) });
    scheduler.add(NewSequence { scores_from: Some(0), ..new(2, &prompt(64), 9) });
    let plan = step(&mut scheduler);
    assert_eq!(plan.admitted, [(1, 0), (2, 0)]);
    let scores = &plan.work.iter().find(|work| work.id == 2).unwrap().scores;
    assert_eq!(scores.len(), 63);
    assert_eq!((scores[0], scores[62]), ((0, 1), (62, 63)));
}

#[test]
fn a_prompt_that_is_scored_from_a_position_on_shares_what_comes_before() {
    let mut scheduler = scheduler(20, 8, 512);
    scheduler.add(new(0, &prompt(96), 9));
    step(&mut scheduler);
    for (id, from, cached) in [(1, 31, 31), (2, 32, 32), (3, 50, 50), (4, 94, 94)] {
        scheduler.add(NewSequence { scores_from: Some(from), ..new(id, &prompt(96), 9) });
        let plan = step(&mut scheduler);
        assert_eq!(plan.admitted, [(id, cached)]);
        let work = plan.work.iter().find(|work| work.id == id).unwrap();
        assert_eq!((work.first, work.scores.len()), (cached, 95 - from));
        assert_eq!(work.scores[0], (0, u32::try_from(from).unwrap() + 1));
    }
}

#[test]
fn the_latest_sequence_makes_room_and_comes_back_where_it_was() {
    let mut scheduler = scheduler(4, 8, 512);
    scheduler.add(new(0, &prompt(64), 32));
    scheduler.add(new(1, &[9; 63], 32));
    step(&mut scheduler);
    let plan = step(&mut scheduler);
    assert_eq!((shares(&plan), plan.preempted), (vec![(0, 64, 1)], 1));
    assert_eq!((scheduler.load(), scheduler.preemptions(1)), ((1, 1), 1));
    scheduler.remove(0);
    let plan = step(&mut scheduler);
    assert_eq!(shares(&plan), [(1, 32, 32)], "its first block was kept, the second one gave way");
    assert!(plan.admitted.is_empty(), "it ran before");
}

#[test]
fn a_sequence_that_made_room_does_not_overtake_an_older_one() {
    let mut scheduler = scheduler(4, 8, 64);
    scheduler.add(new(0, &prompt(70), 50));
    step(&mut scheduler);
    scheduler.add(new(1, &prompt(70), 50));
    scheduler.add(new(2, &[9; 10], 50));
    assert_eq!(shares(&step(&mut scheduler)), [(0, 64, 6), (2, 0, 10)], "1 waits for the end of its prompt");
    while step(&mut scheduler).preempted == 0 {}
    assert_eq!(scheduler.preemptions(2), 1);
    assert_eq!(step(&mut scheduler).admitted, [(1, 69)], "one block is free, and 2 needs two");
}

#[test]
fn what_new_weights_make_stale_is_computed_anew() {
    let mut scheduler = scheduler(20, 8, 512);
    scheduler.add(new(0, &prompt(64), 9));
    step(&mut scheduler);
    scheduler.change_weights(1, OnWeightsChange::Recompute);
    assert_eq!((scheduler.held_blocks(), scheduler.load()), (0, (0, 1)));
    assert_eq!(shares(&step(&mut scheduler)), [(0, 0, 65)]);
    assert!(!scheduler.reset_prefix_cache());
    scheduler.remove(0);
    assert!(scheduler.reset_prefix_cache());
    scheduler.add(new(1, &prompt(64), 9));
    assert_eq!(shares(&step(&mut scheduler)), [(1, 0, 64)]);
}

#[test]
fn what_is_kept_over_new_weights_is_for_its_own_sequence_only() {
    let mut scheduler = scheduler(20, 8, 512);
    scheduler.add(new(0, &prompt(64), 40));
    step(&mut scheduler);
    scheduler.change_weights(1, OnWeightsChange::Reuse);
    assert!(scheduler.reuses_older_keys(0));
    scheduler.add(new(1, &prompt(64), 9));
    assert_eq!(shares(&step(&mut scheduler)), [(0, 64, 1), (1, 0, 64)], "nothing of 0 is found");
    assert!(!scheduler.reuses_older_keys(1));
    scheduler.remove(1);
    (0..35).for_each(|_| _ = step(&mut scheduler));
    // The third block of 0 was computed by the new weights, out of what the old ones had written.
    let mut tokens = prompt(64);
    tokens.extend([7; 33]);
    scheduler.add(new(2, &tokens, 9));
    assert_eq!(step(&mut scheduler).admitted, [(2, 64)], "the two blocks of 1");
    scheduler.give_back_blocks();
    assert!(!scheduler.reuses_older_keys(0));
    assert!(step(&mut scheduler).admitted.is_empty());
    assert!(!scheduler.reuses_older_keys(0), "what it gave back is computed anew");
}

#[test]
fn a_sequence_that_pauses_goes_on_where_it_was_while_nobody_needs_its_blocks() {
    let mut scheduler = scheduler(20, 8, 512);
    scheduler.add(new(0, &prompt(64), 9));
    step(&mut scheduler);
    scheduler.pause(0);
    assert_eq!((scheduler.is_idle(), scheduler.load(), scheduler.paused()), (true, (0, 0), 1));
    scheduler.add(new(1, &[9; 64], 9));
    assert_eq!(shares(&step(&mut scheduler)), [(1, 0, 64)]);
    scheduler.resume(0);
    assert_eq!(shares(&step(&mut scheduler)), [(0, 64, 1), (1, 64, 1)]);
    assert_eq!((scheduler.preemptions(0), scheduler.paused()), (0, 0));
}

#[test]
fn a_sequence_that_pauses_gives_its_blocks_to_younger_ones_and_finds_what_is_left_of_them() {
    let mut scheduler = scheduler(4, 8, 512);
    scheduler.add(new(0, &prompt(60), 60));
    step(&mut scheduler);
    scheduler.pause(0);
    scheduler.add(new(1, &[9; 63], 32));
    assert_eq!(shares(&step(&mut scheduler)), [(1, 0, 63)]);
    let plans = [step(&mut scheduler), step(&mut scheduler)];
    assert_eq!((plans[0].reclaimed, plans[1].reclaimed, plans[1].preempted), (0, 1, 0));
    assert_eq!((shares(&plans[1]), scheduler.preemptions(0)), (vec![(1, 64, 1)], 1));
    scheduler.resume(0);
    scheduler.remove(1);
    assert_eq!(shares(&step(&mut scheduler)), [(0, 32, 29)], "its first block was kept");
}

#[test]
fn a_sequence_that_pauses_has_no_seat_and_waits_for_its_next_turn() {
    let mut scheduler = scheduler(20, 1, 512);
    (0..3).for_each(|id| scheduler.add(new(id.into(), &[id; 40], 9)));
    step(&mut scheduler);
    scheduler.pause(0);
    assert_eq!(shares(&step(&mut scheduler)), [(1, 0, 40)]);
    scheduler.resume(0);
    assert_eq!(shares(&step(&mut scheduler)), [(1, 40, 1)]);
    scheduler.remove(1);
    assert_eq!(shares(&step(&mut scheduler)), [(2, 0, 40)], "it had its turn, and this one had none");
    scheduler.remove(2);
    assert_eq!(shares(&step(&mut scheduler)), [(0, 32, 9)]);
}

#[test]
fn new_weights_and_a_reset_take_the_blocks_of_who_pauses() {
    let mut scheduler = scheduler(20, 8, 512);
    scheduler.add(new(0, &prompt(64), 9));
    step(&mut scheduler);
    scheduler.pause(0);
    assert!(scheduler.reset_prefix_cache());
    assert_eq!(scheduler.held_blocks(), 0);
    scheduler.change_weights(1, OnWeightsChange::Recompute);
    scheduler.resume(0);
    assert_eq!(shares(&step(&mut scheduler)), [(0, 0, 65)]);
}

#[derive(Debug, Clone)]
enum Action {
    Add { prompt: u32, length: usize, max_tokens: usize, scores: Option<usize>, party: Option<u8>, sequences: u64 },
    Remove(usize),
    ChangeWeights(OnWeightsChange),
    Reset,
    Pause(usize),
    Resume(usize),
    Steps(usize),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..3_u32, 1..150_usize, 1..60_usize, prop::option::weighted(0.1, 0..100_usize), prop::option::of(0..3_u8), 1..4_u64)
            .prop_map(|(prompt, length, max_tokens, scores, party, sequences)| {
                Action::Add { prompt, length, max_tokens, scores, party, sequences }
            }),
        1 => (0..20_usize).prop_map(Action::Remove),
        1 => prop_oneof![
            8 => Just(Action::Reset),
            1 => Just(Action::ChangeWeights(OnWeightsChange::Recompute)),
            1 => Just(Action::ChangeWeights(OnWeightsChange::Reuse)),
        ],
        2 => (0..20_usize).prop_map(Action::Pause),
        1 => (0..20_usize).prop_map(Action::Resume),
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
            Action::Add { prompt, length, max_tokens, scores, party, sequences } => {
                // Three families of prompts, so that many begin alike.
                let token_ids: Vec<TokenId> =
                    (0..).take(length).map(|id| if id < 40 { 0 } else { id * prompt }).collect();
                let claimant = Claimant::new(party.map(|party| Party::Client(party.to_string().into())), self.next);
                for id in self.next..self.next + sequences {
                    let claimant = claimant.clone();
                    let scores_from = scores.filter(|from| from + 1 < length);
                    self.scores
                        .extend(scores_from.map(|from| (id, Scores { from, computed_by: vec![None; length - 1] })));
                    self.scheduler.add(NewSequence { claimant, scores_from, ..new(id, &token_ids, max_tokens) });
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
            Action::Steps(steps) => (0..steps).for_each(|_| _ = self.step()),
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

    fn step(&mut self) -> usize {
        let plan = self.scheduler.plan();
        let tokens: usize = plan.work.iter().map(|work| work.token_ids.len()).sum();
        assert!(tokens <= self.scheduler.bounds.max_num_batched_tokens);
        assert!(self.scheduler.running.is_sorted_by_key(|sequence| sequence.id));
        let oldest = self.scheduler.running.first().map(|sequence| sequence.id);
        assert!(self.oldest.is_none_or(|before| oldest.is_some_and(|oldest| oldest <= before)), "the oldest gave way");
        self.oldest = oldest;
        self.memory.run(&plan, &self.tokens, |id| self.scheduler.reuses_older_keys(id));
        self.scheduler.commit(&plan);
        for work in &plan.work {
            for (row, _) in &work.scores {
                let scores = self.scores.get_mut(&work.id).unwrap();
                scores.computed_by[work.first + row] = Some(self.memory.weight_version);
            }
        }
        for work in plan.work.iter().filter(|work| work.samples) {
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
                self.scheduler.push(work.id, token);
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
        max_num_seqs in 1..6_usize,
        budget in 1..100_usize,
    ) {
        let scheduler = scheduler(blocks, max_num_seqs, budget);
        let mut simulation = Simulation {
            scheduler,
            memory: Memory::new(),
            tokens: BTreeMap::new(),
            lengths: BTreeMap::new(),
            scores: BTreeMap::new(),
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
            idle = if simulation.step() == 0 { idle + 1 } else { 0 };
            prop_assert!(idle < 3, "nothing moves");
        }
        prop_assert_eq!((simulation.scheduler.held_blocks(), simulation.scheduler.load()), (0, (0, 0)));
    }
}
