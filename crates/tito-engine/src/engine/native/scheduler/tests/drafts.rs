//! Drafts of another model, asked for where they gain.

use std::time::Duration;

use super::*;
use crate::engine::native::drafts::{ModelDrafts, Speculation};

/// Two sequences that decode, and for which another model may draft; its cost is measured if it is not given.
fn drafting(given: Option<f64>) -> Scheduler {
    let drafts = ModelDrafts { num_speculative_tokens: 4, cost: given };
    let mut scheduler = scheduler(100, 4, 100).speculating(Some(Speculation::Model(drafts)), Some(0.1));
    for id in [1, 2] {
        scheduler.add(new(id, &prompt(3), 1_000));
    }
    step(&mut scheduler);
    scheduler
}

/// How many of so many steps asked for drafts, where one with drafts takes so many milliseconds and gives no more tokens.
fn asking(scheduler: &mut Scheduler, steps: usize, milliseconds: u64) -> usize {
    (0..steps)
        .filter(|_| {
            let plan = step(scheduler);
            let asked = plan.asked.expect("both sequences decode");
            assert_eq!((asked.sequences, asked.drafts), (2, !plan.wishes.is_empty()));
            let took = if asked.drafts { milliseconds } else { 10 };
            scheduler.learn_gain(asked, 2, Duration::from_millis(took));
            asked.drafts
        })
        .count()
}

#[test]
fn another_model_is_not_asked_where_steps_with_its_drafts_are_slower() {
    let mut scheduler = drafting(None);
    assert!(asking(&mut scheduler, 400, 15) < 50);
    let mut scheduler = drafting(None);
    assert!(asking(&mut scheduler, 400, 5) > 350);
}

#[test]
fn a_cost_that_is_given_is_believed() {
    let mut scheduler = drafting(Some(0.1));
    assert_eq!(asking(&mut scheduler, 400, 15), 400);
}

#[test]
fn a_step_that_computes_a_prompt_tells_nothing_of_drafts() {
    let mut scheduler = drafting(None);
    scheduler.add(new(3, &[50, 51], 10));
    let plan = step(&mut scheduler);
    assert_eq!((plan.asked, plan.wishes.len()), (None, 2));
}
