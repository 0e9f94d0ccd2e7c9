//! The scheduler against blocks and slots that remember what was computed into them.

mod adapters;
mod drafts;
mod fairness;
mod images;
mod memory;
mod simulation;
mod states;
mod told;

use std::sync::Arc;

use super::*;
use crate::engine::{Adapter, native::model::AdapterSlot, seat_queue::Claimant};

pub(super) fn scheduler(blocks: usize, max_num_seqs: usize, max_num_batched_tokens: usize) -> Scheduler {
    with_states(blocks, 0, max_num_seqs, max_num_batched_tokens)
}

pub(super) fn with_states(
    blocks: usize,
    slots: usize,
    max_num_seqs: usize,
    max_num_batched_tokens: usize,
) -> Scheduler {
    Scheduler::new(Bounds { max_num_seqs, max_num_batched_tokens }, blocks, slots)
}

pub(super) fn new(id: SequenceId, prompt: &[TokenId], max_tokens: usize) -> NewSequence {
    NewSequence {
        id,
        claimant: Claimant::new(None, id),
        prompt_token_ids: prompt.to_vec(),
        max_tokens,
        salt: None,
        adapter: None,
        images: None,
        scores_from: None,
    }
}

/// Plans, computes nothing, and samples token 7 where a token is due.
pub(super) fn step(scheduler: &mut Scheduler) -> Plan {
    let plan = scheduler.plan();
    scheduler.commit(&plan);
    for work in plan.work.iter().filter(|work| work.samples) {
        scheduler.push(work.id, 7, Vec::new());
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
