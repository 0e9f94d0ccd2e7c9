//! Whom the scheduler serves, when, and how much.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{super::*, new, prompt, scheduler, shares, step};
use crate::engine::seat_queue::{Claimant, Party, TOKENS_OF_A_TURN};

/// Queues the sequences of a request, whose prompts of `length` tokens have nothing in common.
fn add(
    scheduler: &mut Scheduler,
    claimant: &Claimant,
    ids: std::ops::Range<SequenceId>,
    length: usize,
    max_tokens: usize,
) {
    for id in ids {
        let own = TokenId::try_from(id).unwrap() + 8;
        let prompt: Vec<TokenId> = (0..).take(length).map(|place| place * 1_000 + own).collect();
        scheduler.add(NewSequence { claimant: claimant.clone(), ..new(id, &prompt, max_tokens) });
    }
}

fn request(id: SequenceId) -> Claimant {
    Claimant::new(None, id)
}

fn client(name: &str, request: SequenceId) -> Claimant {
    Claimant::new(Some(Party::Client(name.into())), request)
}

#[test]
fn a_request_with_all_seats_gives_one_to_a_later_request_at_once() {
    let mut scheduler = scheduler(100, 4, 512);
    add(&mut scheduler, &request(0), 0..10, 20, 50);
    step(&mut scheduler);
    assert_eq!(scheduler.load(), (4, 6));
    add(&mut scheduler, &request(10), 10..11, 20, 50);
    let plan = step(&mut scheduler);
    assert!(shares(&plan).contains(&(10, 0, 20)), "{plan:?}");
    assert_eq!((plan.preempted, scheduler.preemptions(3)), (1, 1), "the youngest of the many gave way");
    scheduler.remove(0);
    let plan = step(&mut scheduler);
    assert!(plan.work.iter().any(|work| work.id == 3), "it is the first of its own to come back");
}

#[test]
fn no_step_is_planned_ahead_where_the_next_one_has_somebody_to_admit() {
    let mut scheduler = scheduler(100, 4, 512);
    add(&mut scheduler, &request(0), 0..4, 20, 50);
    step(&mut scheduler);
    let plan = step(&mut scheduler);
    // Both have the same prompt: the second one waits until the first one has computed it.
    let same: Vec<TokenId> = (500..570).collect();
    for id in [10, 11] {
        scheduler.add(NewSequence { claimant: request(id), ..new(id, &same, 50) });
    }
    let admitting = scheduler.plan();
    assert_eq!(admitting.admitted.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [10], "{plan:?}");
    assert!(scheduler.plan_ahead(&admitting).is_none(), "the other one is owed a seat");
    scheduler.commit(&admitting);
    admitting.work.iter().for_each(|work| scheduler.push(work.id, 7, Vec::new()));
    let both = scheduler.plan();
    assert_eq!(both.admitted.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [11]);
    // Those who made room are owed nothing while the others run.
    let ahead = scheduler.plan_ahead(&both).unwrap();
    assert_eq!(ahead.work.iter().map(|work| work.id).collect::<Vec<_>>(), [0, 1, 10, 11]);
}

#[test]
fn a_request_with_all_blocks_gives_some_to_a_later_request_at_once() {
    let mut scheduler = scheduler(6, 8, 512);
    add(&mut scheduler, &request(0), 0..3, 63, 50);
    step(&mut scheduler);
    assert_eq!(scheduler.held_blocks(), 6);
    add(&mut scheduler, &request(3), 3..4, 20, 9);
    let plan = step(&mut scheduler);
    assert!(shares(&plan).contains(&(3, 0, 20)), "{plan:?}");
    assert_eq!(scheduler.preemptions(2), 1);
}

#[test]
fn a_client_has_no_more_seats_for_having_more_requests() {
    let mut scheduler = scheduler(100, 4, 512);
    for id in 0..8 {
        add(&mut scheduler, &client("many", id), id..id + 1, 20, 50);
    }
    step(&mut scheduler);
    add(&mut scheduler, &client("one", 8), 8..9, 20, 50);
    add(&mut scheduler, &client("many", 9), 9..10, 20, 50);
    let plan = step(&mut scheduler);
    assert!(shares(&plan).contains(&(8, 0, 20)), "{plan:?}");
    assert!(!plan.work.iter().any(|work| work.id == 9), "its client has seats enough");
}

#[test]
fn the_requests_of_a_client_take_turns_too() {
    let mut scheduler = scheduler(100, 4, 512);
    add(&mut scheduler, &client("one", 0), 0..10, 20, 50);
    step(&mut scheduler);
    add(&mut scheduler, &client("one", 10), 10..11, 20, 50);
    assert!(shares(&step(&mut scheduler)).contains(&(10, 0, 20)));
}

#[test]
fn a_short_prompt_does_not_wait_for_the_end_of_a_long_one() {
    let mut scheduler = scheduler(2_000, 8, 64);
    add(&mut scheduler, &request(0), 0..1, 30_000, 9);
    assert_eq!(shares(&step(&mut scheduler)), [(0, 0, 64)]);
    add(&mut scheduler, &request(1), 1..2, 8, 9);
    let plan = step(&mut scheduler);
    assert!(shares(&plan).contains(&(1, 0, 8)), "{plan:?}");
    assert!(plan.work.iter().any(|work| work.id == 0), "which goes on");
    assert!(plan.work.iter().find(|work| work.id == 1).unwrap().samples);
}

#[test]
fn long_prompts_of_requests_that_came_together_go_on_in_turns() {
    let mut scheduler = scheduler(2_000, 8, 512);
    add(&mut scheduler, &request(0), 0..1, 20_000, 9);
    add(&mut scheduler, &request(1), 1..2, 20_000, 9);
    let mut computed = HashMap::new();
    for _ in 0..40 {
        for (id, _, tokens) in shares(&step(&mut scheduler)) {
            *computed.entry(id).or_insert(0) += tokens;
        }
    }
    assert!(computed[&0].abs_diff(computed[&1]) <= 2_048, "{computed:?}");
    assert!(computed[&0] + computed[&1] > 40 * 200);
}

#[test]
fn a_request_leaves_steps_short_and_shorter_if_it_is_not_alone() {
    let mut scheduler = scheduler(2_000, 256, 512);
    add(&mut scheduler, &request(0), 0..256, 1, 90);
    for _ in 0..3 {
        assert_eq!(step(&mut scheduler).work.len(), 64, "alone");
    }
    add(&mut scheduler, &request(256), 256..257, 8, 1);
    assert_eq!(step(&mut scheduler).work.len(), 5, "the newcomer's first token waits for this step");
    assert_eq!(step(&mut scheduler).work.len(), 17);
    scheduler.remove(256);
    // Its sequences take turns, and none that runs is left out.
    let mut served: HashMap<SequenceId, usize> = HashMap::new();
    for _ in 0..32 {
        step(&mut scheduler).work.iter().for_each(|work| *served.entry(work.id).or_default() += 1);
    }
    assert_eq!(served.len(), 64);
    let (least, most) = (served.values().min().unwrap(), served.values().max().unwrap());
    assert!(most - least <= 1, "{least} {most}");
}

#[test]
fn the_step_after_a_request_came_takes_in_nobody_else() {
    let mut scheduler = scheduler(2_000, 256, 512);
    add(&mut scheduler, &request(0), 0..64, 8, 90);
    step(&mut scheduler);
    add(&mut scheduler, &request(64), 64..80, 8, 90);
    let plan = step(&mut scheduler);
    let (seated, new): (Vec<_>, Vec<_>) = plan.work.iter().partition(|work| work.id < 64);
    assert_eq!((seated.len(), new.len()), (4, 16), "{plan:?}");
    assert!(step(&mut scheduler).work.iter().filter(|work| work.id < 64).count() > 4);
}

#[test]
fn a_party_that_is_not_alone_leaves_steps_short_however_many_requests_it_has() {
    let mut scheduler = scheduler(2_000, 256, 512);
    for id in 0..200 {
        add(&mut scheduler, &client("many", id), id..id + 1, 1, 90);
    }
    step(&mut scheduler);
    assert_eq!(step(&mut scheduler).work.len(), 200, "its own requests do not wait for each other");
    add(&mut scheduler, &client("one", 200), 200..201, 8, 1);
    assert_eq!(step(&mut scheduler).work.len(), 33);
}

#[test]
fn a_group_of_samples_runs_as_a_group() {
    let mut scheduler = scheduler(2_000, 256, 512);
    for group in 0..40 {
        let prompt: Vec<TokenId> = prompt(40).iter().map(|token| token + group * 100).collect();
        let first = u64::from(group) * 16;
        for id in first..first + 16 {
            scheduler.add(NewSequence { claimant: request(first), ..new(id, &prompt, 9) });
        }
    }
    (0..6).for_each(|_| _ = step(&mut scheduler));
    let groups: std::collections::BTreeSet<_> =
        scheduler.running.iter().map(|sequence| sequence.claimant.request).collect();
    assert!(scheduler.running.len() == 256 && groups.len() <= 24, "{groups:?}");
}

/// A party: what it asks for at once, and how that is split into requests.
fn party(name: &str, first: SequenceId, sequences: u64, requests: u64) -> Vec<(SequenceId, Claimant)> {
    let claimant = |id: SequenceId| client(name, first + (id - first) / sequences.div_ceil(requests));
    (first..first + sequences).map(|id| (id, claimant(id))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// However much each of them asks for, and in how many requests: as long as they wait, they are served alike.
    #[test]
    fn parties_that_wait_are_served_alike(
        sequences in prop::collection::vec((30..120_u64, 1..9_u64), 2..5),
        seats in 4..20_usize,
        (length, max_tokens) in (1..60_usize, 1..20_usize),
        budget in 20..200_usize,
    ) {
        let mut scheduler = scheduler(4_000, seats, budget);
        let (mut owners, mut next) = (HashMap::new(), 0);
        for (index, (sequences, requests)) in sequences.iter().enumerate() {
            for (id, claimant) in party(&index.to_string(), next, *sequences, *requests) {
                add(&mut scheduler, &claimant, id..id + 1, length, max_tokens);
                owners.insert(id, index);
            }
            next += sequences;
        }
        let (mut sampled, mut waiting): (HashMap<SequenceId, usize>, Vec<u64>) =
            (HashMap::new(), sequences.iter().map(|(sequences, _)| *sequences).collect());
        let mut served = vec![0_usize; sequences.len()];
        while waiting.iter().all(|waiting| *waiting > 0) {
            let plan = scheduler.plan();
            scheduler.commit(&plan);
            plan.admitted.iter().for_each(|(id, _)| waiting[owners[id]] -= 1);
            for work in &plan.work {
                served[owners[&work.id]] += work.token_ids.len();
                if !work.samples { continue }
                let count = sampled.entry(work.id).or_insert(0);
                *count += 1;
                if *count == max_tokens {
                    scheduler.remove(work.id);
                } else {
                    scheduler.push(work.id, 7, Vec::new());
                }
            }
        }
        let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
        let bound = 2 * (seats * (length + max_tokens) + TOKENS_OF_A_TURN);
        prop_assert!(most - least <= bound, "{served:?}, at most {bound} apart");
    }
}
