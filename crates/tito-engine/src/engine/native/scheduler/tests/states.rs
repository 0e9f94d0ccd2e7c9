//! Recurrent states: who goes on from which, who leaves copies, and what becomes of the slots.

use super::{super::*, new, prompt, shares, step, with_states};
use crate::engine::{native::kv_cache::BlockHash, seat_queue::Claimant};

/// Twelve slots, which are enough for all here unless a test says otherwise.
fn scheduler(blocks: usize) -> Scheduler {
    with_states(blocks, 12, 8, 512)
}

/// The positions at which each sequence of a step leaves copies of its state.
fn borders(plan: &Plan) -> Vec<(SequenceId, Vec<usize>)> {
    plan.work.iter().map(|work| (work.id, work.snapshots.iter().map(|(tokens, _)| *tokens).collect())).collect()
}

/// A prompt that goes on from another one with `length` tokens of its own.
fn longer(before: &[TokenId], own: TokenId, length: usize) -> Vec<TokenId> {
    before.iter().copied().chain(std::iter::repeat_n(own, length)).collect()
}

/// Runs a sequence up to `steps` steps after its prompt was computed, and lets it end.
fn run(scheduler: &mut Scheduler, id: SequenceId, prompt: &[TokenId], steps: usize) -> Vec<TokenId> {
    scheduler.add(new(id, prompt, steps + 2));
    (0..=steps).for_each(|_| _ = step(scheduler));
    scheduler.remove(id);
    longer(prompt, 7, steps + 1)
}

#[test]
fn the_samples_of_a_group_go_on_from_one_copy_of_the_state_before_the_end_of_their_prompt() {
    let mut scheduler = scheduler(20);
    (0..3).for_each(|id| scheduler.add(new(id, &prompt(70), 9)));
    let first = step(&mut scheduler);
    assert_eq!((shares(&first), borders(&first)), (vec![(0, 0, 70)], vec![(0, vec![64])]));
    let second = step(&mut scheduler);
    assert_eq!(shares(&second), [(0, 70, 1), (1, 64, 6), (2, 64, 6)]);
    assert_eq!(second.admitted, [(1, 64), (2, 64)]);
    let copy = first.work[0].snapshots[0].1;
    assert_eq!(second.restores, [(copy, second.work[1].slot), (copy, second.work[2].slot)]);
    assert!(second.copies.is_empty(), "a block that is not whole has no state");
    assert_eq!((scheduler.held_blocks(), scheduler.cache.slots.held()), (5, 3));
}

#[test]
fn a_turn_goes_on_from_the_last_border_of_the_one_before() {
    let mut scheduler = scheduler(20);
    let turn = run(&mut scheduler, 0, &prompt(40), 60);
    assert_eq!(scheduler.cache.slots.held(), 0);
    scheduler.add(new(1, &longer(&turn, 9, 50), 9));
    let plan = step(&mut scheduler);
    assert_eq!((shares(&plan), plan.admitted.clone()), (vec![(1, 96, 55)], vec![(1, 96)]));
    assert_eq!(borders(&plan), [(1, vec![128])]);
}

#[test]
fn each_copy_that_is_left_while_decoding_takes_the_place_of_the_one_before() {
    let mut scheduler = scheduler(20);
    scheduler.add(new(0, &prompt(40), 200));
    let mut left = Vec::new();
    for _ in 0..100 {
        let plan = step(&mut scheduler);
        left.extend(plan.work[0].snapshots.iter().copied());
    }
    let slot = left[1].1;
    assert_eq!(left[1..], [(64, slot), (96, slot), (128, slot)]);
    assert_eq!(left[0].0, 32, "that of the prompt stays");
    assert_ne!(left[0].1, slot);
}

#[test]
fn who_parts_from_others_where_there_is_no_state_leaves_one_there() {
    let mut scheduler = scheduler(40);
    let shared = prompt(96);
    run(&mut scheduler, 0, &longer(&shared, 101, 40), 1);
    scheduler.add(new(1, &longer(&shared, 102, 40), 9));
    let plan = step(&mut scheduler);
    assert_eq!((plan.admitted.clone(), borders(&plan)), (vec![(1, 0)], vec![(1, vec![96, 128])]));
    scheduler.add(new(2, &longer(&shared, 103, 40), 9));
    assert_eq!(step(&mut scheduler).admitted, [(2, 96)]);
}

#[test]
fn of_many_that_begin_alike_at_once_the_second_leaves_a_state_for_the_others() {
    let mut scheduler = scheduler(60);
    for id in 0..4 {
        let own = TokenId::try_from(id).unwrap() + 101;
        scheduler.add(new(id, &longer(&prompt(96), own, 40), 9));
    }
    let plan = step(&mut scheduler);
    assert_eq!(borders(&plan), [(0, vec![128]), (1, vec![96, 128])]);
    assert_eq!(step(&mut scheduler).admitted, [(2, 96), (3, 96)]);
}

#[test]
fn a_state_counts_only_as_far_as_its_blocks_are_there_and_the_other_way_round() {
    let mut scheduler = with_states(6, 12, 8, 512);
    run(&mut scheduler, 0, &prompt(110), 1);
    // Five blocks of another sequence: of the first one, one block is left.
    run(&mut scheduler, 1, &[9; 150], 1);
    assert!(scheduler.cache.slots.find(&hash_of(&prompt(96))).is_some());
    scheduler.add(new(2, &prompt(110), 9));
    let plan = step(&mut scheduler);
    assert_eq!((plan.admitted.clone(), plan.restores.len()), (vec![(2, 0)], 0));
    assert_eq!(borders(&plan), [(2, vec![32])], "the other one is known");
}

/// The hash of whole blocks of tokens.
fn hash_of(tokens: &[TokenId]) -> BlockHash {
    tokens.chunks(BLOCK_TOKENS).fold(BlockHash::root(0, None, None), BlockHash::then)
}

#[test]
fn who_finds_no_slot_waits_and_nobody_makes_room_for_copies() {
    let mut scheduler = with_states(40, 2, 8, 512);
    for (id, token) in [(0, 21), (1, 22), (2, 23)] {
        scheduler.add(new(id, &[token; 40], 40));
    }
    let plan = step(&mut scheduler);
    assert_eq!((shares(&plan), borders(&plan)), (vec![(0, 0, 40), (1, 0, 40)], vec![(0, vec![]), (1, vec![])]));
    assert_eq!((step(&mut scheduler).preempted, scheduler.load()), (0, (2, 1)));
    scheduler.remove(0);
    assert_eq!(step(&mut scheduler).admitted, [(2, 0)]);
}

#[test]
fn where_there_is_no_other_slot_a_copy_becomes_the_state_of_who_goes_on_from_it() {
    let mut scheduler = with_states(40, 2, 8, 512);
    (0..2).for_each(|id| scheduler.add(new(id, &prompt(70), 9)));
    let copy = step(&mut scheduler).work[0].snapshots[0].1;
    let plan = step(&mut scheduler);
    assert_eq!((shares(&plan), plan.restores.len()), (vec![(0, 70, 1), (1, 64, 6)], 0));
    assert_eq!(plan.work[1].slot, copy);
    assert_eq!(scheduler.cache.slots.find(&hash_of(&prompt(64))), None, "it is nobody else's any more");
}

#[test]
fn copies_give_way_to_those_who_begin_to_run_the_least_recently_used_first() {
    let mut scheduler = with_states(40, 3, 8, 512);
    run(&mut scheduler, 0, &prompt(50), 0);
    run(&mut scheduler, 1, &[9; 50], 0);
    // Now the copy of 0 is the one that was used last.
    run(&mut scheduler, 2, &prompt(50), 0);
    for (id, token) in [(3, 21), (4, 22)] {
        scheduler.add(new(id, &[token; 20], 40));
    }
    step(&mut scheduler);
    let found = |tokens: &[TokenId]| scheduler.cache.slots.find(&hash_of(tokens)).is_some();
    assert_eq!((found(&prompt(32)), found(&[9; 32])), (true, false));
}

#[test]
fn a_sequence_that_made_room_goes_on_from_the_copy_that_it_left() {
    let mut scheduler = scheduler(4);
    scheduler.add(new(0, &prompt(64), 32));
    scheduler.add(new(1, &[9; 63], 32));
    step(&mut scheduler);
    let plan = step(&mut scheduler);
    assert_eq!((shares(&plan), plan.preempted), (vec![(0, 64, 1)], 1));
    assert_eq!(scheduler.cache.slots.held(), 1);
    scheduler.remove(0);
    let plan = step(&mut scheduler);
    assert_eq!((shares(&plan), plan.restores.len()), (vec![(1, 32, 32)], 1));
}

#[test]
fn a_request_with_all_slots_gives_one_to_a_later_request_at_once() {
    let mut scheduler = with_states(100, 3, 8, 512);
    for (id, token) in [(0, 21), (1, 22), (2, 23)] {
        scheduler.add(NewSequence { claimant: Claimant::new(None, 0), ..new(id, &[token; 20], 50) });
    }
    step(&mut scheduler);
    scheduler.add(new(3, &[40; 20], 9));
    let plan = step(&mut scheduler);
    assert!(shares(&plan).contains(&(3, 0, 20)), "{plan:?}");
    assert_eq!(scheduler.preemptions(2), 1);
}

#[test]
fn who_pauses_keeps_its_slot_until_somebody_needs_it() {
    let mut scheduler = with_states(40, 2, 8, 512);
    scheduler.add(new(0, &[21; 40], 40));
    step(&mut scheduler);
    scheduler.pause(0);
    scheduler.add(new(1, &[22; 40], 40));
    assert_eq!((step(&mut scheduler).reclaimed, scheduler.cache.slots.held()), (0, 2));
    scheduler.resume(0);
    assert_eq!(shares(&step(&mut scheduler)), [(0, 40, 1), (1, 40, 1)]);
    scheduler.pause(0);
    scheduler.add(new(2, &[23; 40], 40));
    let plan = step(&mut scheduler);
    assert_eq!((plan.reclaimed, plan.admitted), (1, vec![(2, 0)]));
    scheduler.resume(0);
    scheduler.remove(1);
    assert_eq!(shares(&step(&mut scheduler)), [(2, 40, 1), (0, 0, 42)], "no copy was left for it");
}

#[test]
fn a_sequence_that_ends_as_broken_leaves_nothing() {
    let mut scheduler = scheduler(20);
    scheduler.add(new(0, &prompt(70), 9));
    let plan = scheduler.plan();
    assert_eq!(borders(&plan), [(0, vec![64])]);
    scheduler.remove(0);
    scheduler.commit(&plan);
    assert_eq!((scheduler.cache.slots.held(), scheduler.held_blocks()), (0, 0));
    scheduler.add(new(1, &prompt(70), 9));
    assert_eq!(step(&mut scheduler).admitted, [(1, 0)]);
}

#[test]
fn salts_and_new_weights_share_no_states() {
    let mut scheduler = scheduler(40);
    run(&mut scheduler, 0, &prompt(70), 1);
    scheduler.add(NewSequence { salt: Some("a".into()), ..new(1, &prompt(70), 9) });
    assert_eq!(step(&mut scheduler).admitted, [(1, 0)]);
    scheduler.change_weights(1, OnWeightsChange::Recompute);
    assert_eq!(scheduler.cache.slots.held(), 0);
    scheduler.add(new(2, &prompt(70), 9));
    assert_eq!(step(&mut scheduler).admitted, [(2, 0)]);
    scheduler.give_back_blocks();
    assert!(scheduler.reset_prefix_cache());
    scheduler.add(new(3, &prompt(70), 9));
    let plan = step(&mut scheduler);
    assert!(plan.work.iter().all(|work| work.first == 0), "{plan:?}");
}

#[test]
fn a_state_of_older_weights_is_for_its_own_sequence_only() {
    let mut scheduler = scheduler(40);
    scheduler.add(new(0, &prompt(64), 60));
    let slot = step(&mut scheduler).work[0].slot;
    scheduler.change_weights(1, OnWeightsChange::Reuse);
    for _ in 0..50 {
        let plan = step(&mut scheduler);
        assert_eq!((plan.work[0].slot, borders(&plan)), (slot, vec![(0, vec![])]));
    }
    scheduler.add(new(1, &longer(&prompt(64), 7, 50), 9));
    assert_eq!(step(&mut scheduler).admitted, [(1, 0)]);
    // What it gives back is computed anew, and known to others from then on.
    scheduler.remove(1);
    scheduler.give_back_blocks();
    assert!(scheduler.reset_prefix_cache());
    let plan = step(&mut scheduler);
    assert_eq!((shares(&plan), borders(&plan)), (vec![(0, 0, 116)], vec![(0, vec![32, 96])]));
}

#[test]
fn a_prompt_that_is_scored_goes_on_from_a_state_before_its_first_score() {
    let mut scheduler = scheduler(40);
    run(&mut scheduler, 0, &prompt(40), 0);
    run(&mut scheduler, 1, &prompt(96), 0);
    for (id, from, cached) in [(2, 31, 0), (3, 32, 32), (4, 63, 32), (5, 94, 64)] {
        scheduler.add(NewSequence { scores_from: Some(from), ..new(id, &prompt(96), 9) });
        let plan = step(&mut scheduler);
        assert_eq!(plan.admitted, [(id, cached)]);
        let work = plan.work.iter().find(|work| work.id == id).unwrap();
        assert_eq!((work.first, work.scores.len()), (cached, 95 - from));
    }
}

#[test]
fn a_sequence_that_was_cut_off_in_its_output_leaves_copies_while_it_is_computed_anew() {
    let mut scheduler = with_states(40, 12, 8, 40);
    scheduler.add(new(0, &prompt(10), 200));
    (0..100).for_each(|_| _ = step(&mut scheduler));
    scheduler.give_back_blocks();
    assert!(scheduler.reset_prefix_cache());
    let plans: Vec<Plan> = (0..3).map(|_| step(&mut scheduler)).collect();
    let left: Vec<_> = plans.iter().flat_map(borders).collect();
    assert_eq!(left, [(0, vec![32]), (0, vec![64]), (0, vec![96])]);
    assert_eq!(scheduler.cache.slots.len() - scheduler.cache.slots.available(), 1);
}

#[test]
fn while_sequences_wait_outputs_take_no_slot_of_a_copy_that_is_kept() {
    let mut scheduler = with_states(40, 4, 2, 512);
    scheduler.add(new(0, &prompt(70), 200));
    scheduler.add(new(1, &[9; 70], 200));
    step(&mut scheduler);
    scheduler.add(new(2, &prompt(70), 9));
    for _ in 0..60 {
        assert_eq!(borders(&step(&mut scheduler)), [(0, vec![]), (1, vec![])]);
    }
    scheduler.remove(1);
    assert_eq!(step(&mut scheduler).admitted, [(2, 64)]);
    // Nobody waits now, so that the copy of the other prompt gives way.
    let left: Vec<_> =
        (0..40).flat_map(|_| borders(&step(&mut scheduler))).filter(|(_, left)| !left.is_empty()).collect();
    assert!(left.contains(&(0, vec![160])), "{left:?}");
}
