//! Who has a slot for its adapter, and when.

use super::*;
use crate::weights::peft::PeftAdapter;

fn adapter(name: &str) -> Arc<Adapter> {
    Adapter::new(name, 1, PeftAdapter { modules: Vec::new() })
}

fn with_adapter(adapter: &Arc<Adapter>, id: SequenceId, max_tokens: usize) -> NewSequence {
    NewSequence { adapter: Some(Arc::clone(adapter)), ..new(id, &[1, 2, 3], max_tokens) }
}

/// What is put into which slot, and who computes with which.
type PlannedStep = (Vec<(AdapterSlot, String)>, Vec<(SequenceId, Option<AdapterSlot>)>);

/// The adapters that are put into slots in a step, and the sequences that it computes, each with its slot.
fn planned_step(scheduler: &mut Scheduler) -> PlannedStep {
    let plan = step(scheduler);
    let put = plan.adapters.iter().map(|(slot, adapter)| (*slot, adapter.name().to_string())).collect();
    (put, plan.work.iter().map(|work| (work.id, work.adapter)).collect())
}

#[test]
fn an_adapter_is_put_into_a_slot_once_and_the_one_used_longest_ago_leaves_first() {
    let mut scheduler = scheduler(20, 8, 64).with_adapters(2);
    let [a, b, c] = ["a", "b", "c"].map(adapter);
    scheduler.add(with_adapter(&a, 0, 1));
    scheduler.add(with_adapter(&b, 1, 1));
    scheduler.add(new(2, &[9], 1));
    let put = vec![(0, "a".to_owned()), (1, "b".to_owned())];
    assert_eq!(planned_step(&mut scheduler), (put, vec![(0, Some(0)), (1, Some(1)), (2, None)]));
    (0..3).for_each(|id| _ = scheduler.remove(id));
    scheduler.add(with_adapter(&a, 3, 1));
    assert_eq!(planned_step(&mut scheduler), (Vec::new(), vec![(3, Some(0))]));
    scheduler.remove(3);
    // `b` was used longest ago.
    scheduler.add(with_adapter(&c, 4, 1));
    assert_eq!(planned_step(&mut scheduler), (vec![(1, "c".to_owned())], vec![(4, Some(1))]));
}

#[test]
fn nobody_waits_for_ever_for_a_slot_that_others_keep_asking_for() {
    let mut scheduler = scheduler(60, 8, 64).with_adapters(1);
    let [a, b] = ["a", "b"].map(adapter);
    scheduler.add(with_adapter(&a, 0, 99));
    assert_eq!(planned_step(&mut scheduler).1, [(0, Some(0))]);
    scheduler.add(with_adapter(&b, 1, 9));
    // More of `a`, which would keep the slot for ever; the base goes on beside it.
    scheduler.add(with_adapter(&a, 2, 9));
    scheduler.add(new(3, &[9], 9));
    assert_eq!(planned_step(&mut scheduler).1, [(0, Some(0)), (3, None)]);
    assert_eq!(planned_step(&mut scheduler).1, [(0, Some(0)), (3, None)]);
    scheduler.remove(0);
    let (put, work) = planned_step(&mut scheduler);
    assert_eq!(put, [(0, "b".to_owned())]);
    assert_eq!(work, [(3, None), (1, Some(0))]);
    scheduler.remove(1);
    let (put, work) = planned_step(&mut scheduler);
    assert_eq!(put, [(0, "a".to_owned())]);
    assert_eq!(work, [(3, None), (2, Some(0))]);
}

#[test]
fn only_those_that_wait_for_a_slot_while_there_are_seats_are_deferred() {
    let mut scheduler = scheduler(60, 3, 64).with_adapters(1);
    let [a, b] = ["a", "b"].map(adapter);
    scheduler.add(with_adapter(&a, 0, 99));
    step(&mut scheduler);
    assert_eq!(scheduler.adapter_load().deferred, 0);
    scheduler.add(with_adapter(&b, 1, 9));
    scheduler.add(with_adapter(&b, 2, 9));
    step(&mut scheduler);
    assert_eq!((scheduler.load(), scheduler.adapter_load().deferred), ((1, 2), 2));
    // All seats are taken, for which they would wait in any case.
    scheduler.add(new(3, &[9], 99));
    scheduler.add(new(4, &[9], 99));
    step(&mut scheduler);
    assert_eq!((scheduler.load(), scheduler.adapter_load().deferred), ((3, 2), 0));
    scheduler.remove(0);
    step(&mut scheduler);
    assert_eq!(scheduler.adapter_load().deferred, 0);
}

#[test]
fn a_forgotten_adapter_leaves_when_nobody_runs_with_it() {
    let mut scheduler = scheduler(20, 8, 64).with_adapters(2);
    let [a, b] = ["a", "b"].map(adapter);
    scheduler.add(with_adapter(&a, 0, 9));
    step(&mut scheduler);
    scheduler.forget_adapter(a.id());
    scheduler.forget_adapter(b.id());
    assert_eq!(scheduler.emptied_slots(), [] as [usize; 0]);
    scheduler.remove(0);
    assert_eq!(scheduler.emptied_slots(), [0]);
    assert_eq!(scheduler.emptied_slots(), [] as [usize; 0]);
}

#[test]
fn an_adapter_that_is_forgotten_while_it_waits_for_a_slot_leaves_it_in_the_end() {
    let mut scheduler = scheduler(20, 8, 64).with_adapters(1);
    let [a, b] = ["a", "b"].map(adapter);
    scheduler.add(with_adapter(&a, 0, 9));
    scheduler.add(with_adapter(&b, 1, 9));
    step(&mut scheduler);
    scheduler.forget_adapter(b.id());
    assert_eq!(scheduler.emptied_slots(), [] as [usize; 0]);
    scheduler.remove(0);
    assert_eq!(planned_step(&mut scheduler), (vec![(0, "b".to_owned())], vec![(1, Some(0))]));
    assert_eq!(scheduler.emptied_slots(), [] as [usize; 0]);
    scheduler.remove(1);
    assert_eq!(scheduler.emptied_slots(), [0]);
    // One that ends before it had a slot leaves nothing behind.
    scheduler.add(with_adapter(&a, 2, 9));
    scheduler.add(with_adapter(&b, 3, 9));
    step(&mut scheduler);
    scheduler.forget_adapter(b.id());
    scheduler.remove(3);
    assert_eq!(scheduler.emptied_slots(), [] as [usize; 0]);
}

#[test]
fn a_sequence_that_paused_waits_if_its_adapter_has_left() {
    let mut scheduler = scheduler(20, 8, 64).with_adapters(1);
    let [a, b] = ["a", "b"].map(adapter);
    scheduler.add(with_adapter(&a, 0, 9));
    step(&mut scheduler);
    scheduler.pause(0);
    scheduler.add(with_adapter(&b, 1, 9));
    assert_eq!(planned_step(&mut scheduler).0, [(0, "b".to_owned())]);
    scheduler.resume(0);
    assert_eq!(planned_step(&mut scheduler).1, [(1, Some(0))]);
    scheduler.remove(1);
    let (put, work) = planned_step(&mut scheduler);
    assert_eq!((put, work), (vec![(0, "a".to_owned())], vec![(0, Some(0))]));
}

#[test]
fn a_plan_goes_on_without_those_whose_adapter_finds_no_memory() {
    let mut scheduler = scheduler(20, 8, 64).with_adapters(1);
    let a = adapter("a");
    scheduler.add(with_adapter(&a, 0, 9));
    scheduler.add(new(1, &[9], 9));
    let mut plan = scheduler.plan();
    scheduler.vacate(0);
    assert_eq!(scheduler.without_adapter(&mut plan, 0), [0]);
    scheduler.remove(0);
    scheduler.commit(&plan);
    assert_eq!(plan.work.iter().map(|work| work.id).collect::<Vec<_>>(), [1]);
    assert_eq!(scheduler.held_blocks(), 1);
}

#[test]
fn one_that_sits_and_waits_for_room_for_its_image_leaves_with_its_adapter_too() {
    let mut scheduler = scheduler(20, 8, 12).with_adapters(1);
    scheduler.add(new(1, &prompt(8), 9));
    // Its image of 10 tokens does not fit beside the prompt before.
    scheduler.add(NewSequence { adapter: Some(adapter("a")), ..images::seeing(0, 12, &[0]) });
    let mut plan = scheduler.plan();
    assert_eq!((plan.adapters.len(), plan.work.len()), (1, 1));
    scheduler.vacate(0);
    assert_eq!(scheduler.without_adapter(&mut plan, 0), [0]);
}

#[test]
fn a_forgotten_adapter_that_is_put_into_a_slot_once_more_leaves_that_too() {
    let mut scheduler = scheduler(20, 8, 64).with_adapters(1);
    let a = adapter("a");
    scheduler.add(with_adapter(&a, 0, 9));
    scheduler.add(with_adapter(&a, 1, 9));
    step(&mut scheduler);
    scheduler.pause(1);
    scheduler.forget_adapter(a.id());
    scheduler.remove(0);
    assert_eq!(scheduler.emptied_slots(), [0]);
    scheduler.resume(1);
    assert_eq!(planned_step(&mut scheduler).0, [(0, "a".to_owned())]);
    scheduler.remove(1);
    assert_eq!(scheduler.emptied_slots(), [0]);
}
