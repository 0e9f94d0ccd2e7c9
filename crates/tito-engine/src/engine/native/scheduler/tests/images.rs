//! Images of which each token attends to all: never cut, and never put off for ever.

use super::*;
use crate::engine::{PromptImage, images::tests::at, native::images::SequenceImages};

/// A prompt of so many tokens with images of 10 tokens at these places, which are seen both ways.
pub(super) fn seeing(id: SequenceId, length: usize, offsets: &[usize]) -> NewSequence {
    let images: Vec<PromptImage> = offsets.iter().map(|&offset| at(offset, 2, 5)).collect();
    NewSequence { images: SequenceImages::attending(&images, true), ..new(id, &prompt(length), 9) }
}

/// Computes steps until a sequence samples, checks that no work cuts an image, and returns its pieces.
fn pieces(scheduler: &mut Scheduler, id: SequenceId) -> Vec<(usize, usize)> {
    let mut pieces = Vec::new();
    for _ in 0..200 {
        let plan = step(scheduler);
        for work in &plan.work {
            let end = work.first + work.token_ids.len();
            let cut = |index| work.images.as_ref().and_then(|images| images.cut_at(index));
            assert_eq!((cut(work.first), cut(end)), (None, None), "{} to {end} of {}", work.first, work.id);
            if work.id == id {
                pieces.push((work.first, end));
                if work.samples {
                    return pieces;
                }
            }
        }
    }
    panic!("{id} was put off: {pieces:?}");
}

#[test]
fn a_piece_ends_before_an_image_or_after_it() {
    let mut alone = scheduler(20, 8, 16);
    alone.add(seeing(0, 60, &[4, 20, 30, 45]));
    // 16 tokens would end within the second image, the next ones within the third.
    assert_eq!(pieces(&mut alone, 0), [(0, 16), (16, 30), (30, 45), (45, 60)]);
    let mut tight = scheduler(20, 8, 10);
    tight.add(seeing(0, 40, &[4, 14, 29]));
    assert_eq!(pieces(&mut tight, 0), [(0, 4), (4, 14), (14, 24), (24, 29), (29, 39), (39, 40)]);
}

#[test]
fn an_image_is_not_put_off_by_those_that_decode_or_have_short_prompts() {
    // Half of a step is for eight that decode, and a quarter for short prompts, which is less than an image.
    let mut scheduler = scheduler(200, 32, 16);
    for id in 0..14 {
        scheduler.add(NewSequence { max_tokens: 100, ..new(id, &[1, 2, 3], 100) });
    }
    for _ in 0..8 {
        step(&mut scheduler);
    }
    scheduler.add(seeing(20, 60, &[0, 20, 30]));
    for id in 21..30 {
        scheduler.add(new(id, &[5, 6], 100));
    }
    let found = pieces(&mut scheduler, 20);
    assert_eq!((found[0].0, found.last().unwrap().1), (0, 60));
    // And decoding went on meanwhile.
    assert!(step(&mut scheduler).work.len() > 3);
}

#[test]
fn what_is_found_of_a_prompt_ends_before_an_image_or_after_it() {
    for (offset, of_running, of_kept) in [(28, 39, 28), (23, 39, 23), (22, 39, 32), (0, 39, 32), (30, 30, 30)] {
        let mut scheduler = scheduler(20, 8, 512);
        scheduler.add(seeing(0, 40, &[offset]));
        step(&mut scheduler);
        // Of one that runs, its last block too, which is not whole.
        scheduler.add(seeing(1, 40, &[offset]));
        let plan = step(&mut scheduler);
        assert_eq!((&plan.admitted[..], plan.copies.len()), (&[(1, of_running)][..], 1), "{offset}");
        scheduler.remove(0);
        scheduler.remove(1);
        // Of what is kept, whole blocks alone.
        scheduler.add(seeing(2, 40, &[offset]));
        let plan = step(&mut scheduler);
        assert_eq!(plan.admitted, [(2, of_kept)], "{offset}");
        assert_eq!(plan.copies.len(), usize::from(of_kept < 32), "{offset}");
    }
}

#[test]
fn one_that_begins_with_an_image_for_which_a_step_has_no_room_waits_with_a_seat() {
    let mut scheduler = scheduler(40, 8, 12);
    for id in 0..4 {
        scheduler.add(new(id, &[1, 2], 50));
    }
    step(&mut scheduler);
    step(&mut scheduler);
    scheduler.add(seeing(9, 30, &[0, 10]));
    assert_eq!(pieces(&mut scheduler, 9)[..2], [(0, 10), (10, 20)]);
}
