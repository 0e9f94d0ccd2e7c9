//! Steps that a GPU begins before the tokens of the ones before are on the host: of models, without an engine.

use candle_core::DType;

use super::{
    super::{DeviceBackend, kernels::counted, work},
    processor, test_device,
    underway::late_device,
};
use crate::{
    TokenId,
    engine::native::{
        backend::{Batch, Span},
        model::{Model, Room, tests::made_up::made_up_to_add},
    },
    sampling::{DeviceDraw, DevicePick, Drawn},
};

#[test]
fn a_step_ahead_waits_for_nothing() {
    let device = test_device();
    if !device.is_cuda() {
        eprintln!("SKIPPED: only a GPU computes while the host goes on; tests/emulated-gpu/run has an emulated one");
        return;
    }
    let backend = DeviceBackend::new(device, DType::BF16, processor(1)).going_ahead();
    let room = Room { blocks: 300, slots: 0 };
    let mut model = made_up_to_add(&work::config("qwen3", 2), backend, room);
    let step = |position| work::Step { name: "", position, tokens: 1, sequences: 270 }.batch();
    let draws = vec![DeviceDraw::unedited(DevicePick::Best); 270];
    let after: Vec<usize> = (0..270).collect();
    // The first one takes memory, as does the second one of the host.
    let first = model.begin(&step(4), None, &draws);
    let second = model.begin(&step(5), Some(&after), &draws);
    assert_eq!(model.land(first).0.len(), 270);
    let mut third = None;
    let counts = counted(|| third = Some(model.begin(&step(6), Some(&after), &draws)));
    let waits = counts.iter().flatten().filter(|(name, _)| name.contains("wait")).collect::<Vec<_>>();
    assert!(waits.is_empty(), "{waits:?}");
    assert_eq!([second, third.unwrap()].map(|step| model.land(step).1), [vec![true; 270], vec![true; 270]]);
}

/// What is drawn in steps of three sequences: of their prompts, then of each token. `ahead` of the tokens of the step before, or with
/// these from the host.
fn drawn(model: &mut Model<DeviceBackend>, ahead: bool) -> Vec<Vec<Drawn>> {
    const SEQUENCES: usize = 3;
    let batch = |position: usize, token_ids: Vec<TokenId>| {
        let tokens = token_ids.len() / SEQUENCES;
        let span = |sequence: usize| {
            let first = u32::try_from(sequence * 4).unwrap();
            Span {
                first_row: sequence * tokens,
                tokens,
                first_position: position,
                blocks: (first..first + 4).collect(),
                slot: 0,
                adapter: None,
                snapshots: Vec::new(),
            }
        };
        let logit_rows = (1..=SEQUENCES).map(|sequence| sequence * tokens - 1).collect();
        Batch { token_ids, spans: (0..SEQUENCES).map(span).collect(), logit_rows, images: Vec::new() }
    };
    let share = |step: usize| {
        let pick = |row: usize| DevicePick::Share { temperature: 1.0, uniform: (row + step * 3) as f64 / 31.0 };
        (0..SEQUENCES).map(|row| DeviceDraw::unedited(pick(row))).collect::<Vec<_>>()
    };
    let prompt = (0..SEQUENCES * 30).map(|row| u32::try_from(row * 37 % 1024).unwrap()).collect();
    let mut underway = model.begin(&batch(0, prompt), None, &share(0));
    let mut found = Vec::new();
    for step in 1..9 {
        if ahead {
            // Which tokens they are is not said.
            let next = model.begin(&batch(29 + step, vec![0; SEQUENCES]), Some(&[0, 1, 2]), &share(step));
            found.push(model.land(std::mem::replace(&mut underway, next)).0);
        } else {
            let tokens = model.land(underway).0;
            let ids = tokens.iter().map(|token| token.id).collect();
            found.push(tokens);
            underway = model.begin(&batch(29 + step, ids), None, &share(step));
        }
    }
    found.push(model.land(underway).0);
    found
}

#[test]
fn every_family_goes_ahead_with_the_tokens_that_it_drew() {
    if !test_device().is_cuda() {
        eprintln!(
            "SKIPPED: other families than Llama's go ahead on a GPU only; tests/emulated-gpu/run has an emulated one"
        );
        return;
    }
    for kind in ["llama", "qwen2", "qwen3_moe", "gemma3"] {
        let [expected, ahead, recorded] = [(false, false), (true, false), (true, true)].map(|(ahead, recording)| {
            let backend = DeviceBackend::new(late_device(), DType::BF16, processor(1)).going_ahead();
            let backend = if recording { backend.recording() } else { backend };
            let mut model = made_up_to_add(&work::config(kind, 2), backend, Room { blocks: 12, slots: 0 });
            assert!(model.goes_ahead(), "{kind}");
            drawn(&mut model, ahead)
        });
        assert_eq!(ahead, expected, "{kind}");
        assert_eq!(recorded, expected, "{kind}, recorded");
    }
}
