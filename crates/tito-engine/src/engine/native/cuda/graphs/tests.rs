//! Recorded steps beside those whose kernels are launched one by one, on a GPU: on the emulated one, too.

use candle_core::DType;
use serde_json::{Value, json};

use super::super::{
    DeviceBackend, Gpu, kernels,
    tests::{assert_same_bits, one_tensor, processor, replace, step, test_device},
    work::{Step, config},
};
use crate::engine::native::{
    backend::{BLOCK_TOKENS, Batch},
    images::SequenceImages,
    model::{
        Model, Room,
        tests::{images, made_up::made_up_to_add},
    },
};

/// Blocks of every sequence: as many as its last position needs.
const BLOCKS: u32 = 1040 / 32 + 1;
const SEQUENCES: usize = 4;

/// The same model twice: one that records steps, and one that does not. `None` without a GPU.
///
/// Each has a stream of its own, as engines have: what a thread launches on a stream that another one records would be recorded.
fn both(kind: &str) -> Option<[Model<DeviceBackend>; 2]> {
    both_of(&config(kind, 2))
}

fn both_of(config: &Value) -> Option<[Model<DeviceBackend>; 2]> {
    if !test_device().is_cuda() {
        eprintln!("SKIPPED: only a GPU records steps; tests/emulated-gpu/run has an emulated one");
        return None;
    }
    let backend = || DeviceBackend::new(Gpu::open(0).unwrap().device(), DType::BF16, processor(1));
    assert_eq!(BLOCK_TOKENS, 32);
    let room = Room { blocks: SEQUENCES * BLOCKS as usize, slots: 0 };
    let mut models = [backend().recording(), backend()].map(|backend| made_up_to_add(config, backend, room));
    // The largest step comes first: it takes the memory that the others find.
    compare(&mut models, &batch(0, 40, SEQUENCES), "prompts");
    Some(models)
}

/// A step of one token, or of more, of some sequences; all of them have so many tokens before.
fn batch(position: usize, tokens: usize, sequences: usize) -> Batch {
    let mut batch = Step { name: "", position, tokens, sequences }.batch();
    for (number, span) in (0..).zip(&mut batch.spans) {
        // Each has its own blocks, however few of them it needs.
        span.blocks = (number * BLOCKS..).take(span.blocks.len()).collect();
    }
    batch
}

/// How many steps were launched as a whole.
fn launched(model: &mut Model<DeviceBackend>) -> u64 {
    model.backend_mut().graphs.launched
}

/// Has both compute a step, and compares all bits.
fn compare([recording, plain]: &mut [Model<DeviceBackend>; 2], batch: &Batch, what: &str) {
    let (found, expected) = (step(recording, batch), step(plain, batch));
    assert_same_bits(&found.0, &expected.0, what);
    assert_eq!(found.1, expected.1, "{what}");
}

#[test]
fn recorded_steps_have_the_bits_of_others_in_any_company() {
    for kind in ["llama", "qwen2", "qwen3", "qwen3_moe", "gemma3", "granite"] {
        let Some(mut models) = both(kind) else { return };
        // From here on, keys that a split more or less has: other items, and then merges.
        for position in 1020..1028 {
            compare(&mut models, &batch(position, 1, 3), &format!("{kind} after {position} tokens"));
        }
        let of_three = launched(&mut models[0]);
        assert!(of_three >= 3, "{of_three} of 8 steps were launched as a whole");
        for (sequences, tokens) in [(1, 40), (4, 1), (4, 1), (4, 1), (3, 1), (3, 1), (1, 7), (3, 1)] {
            compare(&mut models, &batch(1028, tokens, sequences), &format!("{kind}, {sequences} of {tokens}"));
        }
        assert_eq!(launched(&mut models[0]), of_three + 2, "the third of four sequences, and of three");
        assert_eq!(launched(&mut models[1]), 0, "nobody asked for records");
    }
}

#[test]
fn what_was_recorded_reads_new_weights_and_goes_with_memory_that_it_names() {
    let Some(mut models) = both("qwen3") else { return };
    let next = batch(30, 1, 2);
    let rounds = |models: &mut [Model<DeviceBackend>; 2], what: &str| {
        let before = launched(&mut models[0]);
        for _ in 0..4 {
            compare(models, &next, what);
        }
        launched(&mut models[0]) - before
    };
    assert_eq!(rounds(&mut models, "at first"), 2, "one is computed, one recorded, and the others launched");
    // New numbers in the same memory.
    let shape = [256, 512];
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let number = |place| (place as f32 * 0.37).sin();
    let weights = one_tensor("model.layers.1.self_attn.o_proj.weight", &shape, number);
    for model in &mut models {
        replace(model, &weights);
    }
    assert_eq!(rounds(&mut models, "with new weights"), 4);
    // Memory that is given back and taken again is elsewhere, and other kernels may have it by then.
    for model in &mut models {
        model.discard_cache();
        model.restore_cache().unwrap();
    }
    assert_eq!(rounds(&mut models, "with a new cache"), 2);
    // A longer step than ever before takes more memory for itself.
    compare(&mut models, &batch(0, 90, 4), "a long step");
    assert_eq!(rounds(&mut models, "after a long step"), 2);
}

/// What the driver refuses to record panics, as all that it refuses does; steps are computed as before then.
#[test]
fn what_panics_while_it_is_recorded_ends_the_recording() {
    let Some(mut models) = both("llama") else { return };
    let backend = models[0].backend_mut();
    let (device, allocations) = (backend.device.clone(), backend.allocations.clone());
    let recorded = kernels::record(&device, &allocations, || panic!("the device failed: not while it records"));
    // The reason may have a backtrace behind it.
    let reason = recorded.err().unwrap().to_string();
    assert!(reason.starts_with("the device failed: not while it records"), "{reason}");
    for _ in 0..3 {
        compare(&mut models, &batch(30, 1, 2), "after a recording that failed");
    }
    assert!(launched(&mut models[0]) > 0);
}

#[test]
fn a_step_that_nobody_asked_for_before_takes_the_place_of_the_oldest() {
    let Some(mut models) = both("llama") else { return };
    for tokens in 1..=4 {
        compare(&mut models, &batch(0, tokens, 1), "a short prompt");
    }
    let graphs = &models[0].backend_mut().graphs;
    assert_eq!((graphs.steps.len(), graphs.launched), (4, 0));
    assert!(graphs.steps.values().all(|known| known.graph.is_none()), "steps that come once are not recorded");
}

#[test]
fn a_step_with_an_image_that_is_seen_both_ways_is_not_recorded() {
    let golden = images::golden("gemma3_plain");
    let mut config = Value::Object(golden.config().clone());
    // Heads that have kernels, of which a short prompt is recorded too, and as many ids as other steps have.
    config["text_config"]
        .as_object_mut()
        .unwrap()
        .extend([("head_dim", 256), ("vocab_size", 1024)].map(|(key, number)| (key.to_owned(), json!(number))));
    let Some(mut models) = both_of(&config) else { return };
    let prompt = images::prompts(&golden).into_iter().find(|prompt| prompt.name == "one_image").unwrap();
    let blind = Batch { token_ids: prompt.token_ids.clone(), ..batch(0, prompt.token_ids.len(), 1) };
    let images = vec![(0, SequenceImages::attending(&prompt.images, true).unwrap())];
    let seeing = Batch { images, ..blind.clone() };
    for _ in 0..4 {
        compare(&mut models, &seeing, "with an image");
    }
    assert_eq!(launched(&mut models[0]), 0);
    for _ in 0..4 {
        compare(&mut models, &blind, "without an image");
    }
    assert_eq!(launched(&mut models[0]), 2, "the same step without an image is one to record");
    let [recording, _] = &mut models;
    assert_ne!(step(recording, &seeing).0, step(recording, &blind).0, "the image is seen");
}
