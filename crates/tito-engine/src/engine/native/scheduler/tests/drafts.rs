//! Drafts where they gain, by times that are made up.

use std::time::Duration;

use super::*;
use crate::engine::native::drafts::{Asked, DraftSource, ModelDrafts, NgramLookup, Speculation};

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
            let [asked] = plan.asked[..] else { panic!("both sequences decode") };
            assert_eq!((asked.source, asked.sequences), (DraftSource::Model, 2));
            assert_eq!(asked.drafts, !plan.wishes.is_empty());
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
    assert_eq!((&plan.asked[..], plan.wishes.len()), (&[][..], 2));
}

/// Two sequences whose texts repeat themselves, and what is said of time.
fn repeating(timed: bool) -> Scheduler {
    let ngram = NgramLookup { num_speculative_tokens: 4, prompt_lookup_max: 3, prompt_lookup_min: 1, timed };
    let mut scheduler = scheduler(100, 4, 100).speculating(Some(Speculation::Ngram(ngram)), None);
    for id in [1, 2] {
        scheduler.add(new(id, &[7; 3], 1_000));
    }
    step(&mut scheduler);
    scheduler
}

/// How many of so many steps had drafts from this source, where one with such drafts takes so many milliseconds and gives no
/// more tokens. Where a structured output forces something, it does so for the first sequence.
fn drafting_from(scheduler: &mut Scheduler, source: DraftSource, steps: usize, milliseconds: u64) -> usize {
    (0..steps)
        .filter(|_| {
            let plan = scheduler.plan();
            scheduler.commit(&plan);
            for work in &plan.work {
                let forces = source == DraftSource::Forced && work.id == 1;
                scheduler.push(work.id, 7, if forces { vec![9] } else { Vec::new() });
            }
            let of_source: Vec<&Asked> = plan.asked.iter().filter(|asked| asked.source == source).collect();
            let has_any = plan.work.iter().any(|work| match source {
                DraftSource::Forced => work.draft() == [9],
                _ => work.draft().starts_with(&[7]),
            });
            let [asked] = of_source[..] else { return has_any };
            assert_eq!((asked.sequences, asked.drafts), (2, has_any));
            for asked in plan.asked {
                let took = if asked.source == source && asked.drafts { milliseconds } else { 10 };
                scheduler.learn_gain(asked, 2, Duration::from_millis(took));
            }
            has_any
        })
        .count()
}

#[test]
fn nothing_is_drafted_from_texts_or_forced_where_steps_with_such_drafts_are_slower() {
    for source in [DraftSource::Texts, DraftSource::Forced] {
        let slower = drafting_from(&mut repeating(true), source, 300, 15);
        assert!((5..80).contains(&slower), "{slower} of {source:?}");
        let faster = drafting_from(&mut repeating(true), source, 300, 5);
        assert!((250..300).contains(&faster), "{faster} of {source:?}");
        let untimed = drafting_from(&mut repeating(false), source, 300, 15);
        assert!(untimed > 298, "{untimed} of {source:?}");
    }
}
