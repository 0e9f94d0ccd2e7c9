//! Steps that are begun before the tokens of the ones before are on the host, beside steps that wait for them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use candle_core::{DType, Device as CandleDevice};
use futures::{StreamExt, future::join_all};

use super::{super::DeviceBackend, processor, speculation::config, test_device};
use crate::{
    TokenId,
    engine::{
        Engine, EngineControl, EngineError, FinishReason, SamplingParams, SequenceRequest, WeightDtype, WeightTensor,
        native::{
            Device, Dtype, NativeEngine, NativeSettings,
            model::{Room, tests::made_up::made_up_to_add},
            tests::{Random, bits, collected, in_company, params, request, settings, weights::replace},
        },
    },
    sampling::{LogprobsMode, SampleError},
};

/// How many requests there are, of at most so many tokens: a GPU that is emulated takes its time.
fn extent() -> (u32, u32) {
    match (test_device().is_cuda(), cfg!(unoptimised)) {
        (true, _) => (6, 12),
        (false, true) => (15, 60),
        (false, false) => (60, 60),
    }
}

/// A device of its own, which does all work as late as it may where it is emulated.
pub(super) fn late_device() -> CandleDevice {
    let device = test_device();
    #[cfg(feature = "cuda")]
    if device.is_cuda() {
        let device = super::super::Gpu::open(0).unwrap().device();
        super::super::kernels::be_late(&device);
        return device;
    }
    device
}

/// An engine that goes ahead, or one that does not, and how often it did.
fn engine(goes_ahead: bool, dtype: DType, blocks: usize, max_num_seqs: usize) -> (NativeEngine, Arc<AtomicU64>) {
    let config = config();
    let backend = DeviceBackend::new(late_device(), dtype, processor(1)).deterministic();
    let backend = if goes_ahead { backend.going_ahead() } else { backend };
    let count = Arc::clone(&backend.steps_ahead);
    let room = Room { blocks, slots: 0 };
    let model = made_up_to_add(&config, backend, room);
    let settings = NativeSettings {
        config: config.as_object().unwrap().clone(),
        dtype: if dtype == DType::BF16 { Dtype::Bf16 } else { Dtype::F32 },
        device: Device::Cuda { number: 0, deterministic: true, records_steps: false, goes_ahead, memory_share: None },
        max_num_seqs,
        ..settings("llama")
    };
    (NativeEngine::serve(&settings, "of a test".to_owned(), (model, None), 1, room).unwrap(), count)
}

/// The last norm of the model.
fn norm(value: f32) -> WeightTensor {
    WeightTensor {
        name: "model.norm.weight".to_owned(),
        dtype: WeightDtype::F32,
        shape: vec![128],
        bytes: value.to_le_bytes().repeat(128).into(),
    }
}

/// Requests whose tokens the device draws, but for a few; and of these, some that end where nobody can know it before.
fn requests() -> Vec<SequenceRequest> {
    let mut random = Random::seeded(33);
    let (count, most_tokens) = extent();
    let one = |number: u32| {
        let prompt: Vec<TokenId> = (0..=random.below(70)).map(|place| (place * 7 + number % 3) % 96).collect();
        let max_tokens = random.below(most_tokens) as usize + 1;
        let sampling = SamplingParams {
            temperature: [0.0, 0.7, 1.0][number as usize % 3],
            seed: Some(u64::from(number)),
            logprobs: None,
            logprobs_mode: [LogprobsMode::Raw, LogprobsMode::Processed][random.below(2) as usize],
            stop_token_ids: if random.below(2) == 0 { (0..random.below(9)).collect() } else { Vec::new() },
            ignore_eos: random.below(2) == 0,
            top_p: if random.below(12) == 0 { 0.8 } else { 1.0 },
            presence_penalty: if random.below(12) == 0 { 0.4 } else { 0.0 },
            min_tokens: if random.below(6) == 0 { 3.min(max_tokens) } else { 0 },
            ..params(max_tokens)
        };
        SequenceRequest { prompt_logprobs: (random.below(16) == 0).then_some(0), ..request(&prompt, sampling) }
    };
    (0..count).map(one).collect()
}

#[tokio::test]
async fn steps_ahead_change_no_bit_in_company_and_under_preemption() {
    let requests = requests();
    let on_gpu = test_device().is_cuda();
    for dtype in if on_gpu { vec![DType::BF16] } else { vec![DType::F32, DType::BF16] } {
        let (plain, _) = engine(false, dtype, 64, 1);
        let mut expected = Vec::new();
        for request in &requests {
            expected.push(collected(plain.generate(request.clone())).await);
        }
        for (blocks, max_num_seqs) in
            [(9, 64), (40, 3), (2_000, 64), (5, 2)].into_iter().take(if on_gpu { 2 } else { 4 })
        {
            let (ahead, count) = engine(true, dtype, blocks, max_num_seqs);
            for _ in 0..if on_gpu { 1 } else { 2 } {
                // All at once, and a few at a time: then, most steps have only sequences that decode.
                for company in requests.chunks(5).chain([&requests[..]]) {
                    let offset = company.as_ptr_range().start as usize - requests.as_ptr_range().start as usize;
                    let first = offset / size_of::<SequenceRequest>();
                    let found = join_all(in_company(&ahead, company).into_iter().map(collected)).await;
                    for (place, (found, expected)) in found.iter().zip(&expected[first..]).enumerate() {
                        let which = format!("request {}, {dtype:?}, {blocks} blocks", first + place);
                        assert_eq!((bits(found), &found.2), (bits(expected), &expected.2), "{which}");
                        assert_eq!(found.1, expected.1, "{which}");
                    }
                }
            }
            let steps = count.load(Ordering::Relaxed);
            assert!(steps > 10, "{steps} steps were begun ahead");
        }
    }
}

#[tokio::test]
async fn clients_that_leave_and_weights_that_come_find_all_steps_taken() {
    let (engine, count) = engine(true, DType::F32, 200, 8);
    let (rounds, longest) = if test_device().is_cuda() { (1_u8, 20) } else { (6, 120) };
    let asked = |seed: u64, max_tokens| {
        let params = SamplingParams { seed: Some(seed), logprobs: None, ignore_eos: true, ..params(max_tokens) };
        request(&[3, 5, 8, 13], params)
    };
    for round in 0..rounds {
        let mut streams: Vec<_> = (0..6).map(|seed| engine.generate(asked(seed, longest))).collect();
        for stream in &mut streams {
            stream.next().await.unwrap().unwrap();
        }
        // Some leave in the midst of it.
        let mut staying = streams.split_off(3);
        drop(streams);
        let version = replace(&engine, vec![norm(1.0 + f32::from(round))]).await.unwrap();
        assert_eq!(version.number, u64::from(round) + 1);
        for stream in staying.drain(..) {
            assert_eq!(collected(stream).await.2, FinishReason::Length);
        }
        // What the new weights give is what they give to those who come now.
        let alone = collected(engine.generate(asked(1, longest / 3))).await;
        let again = collected(engine.generate(asked(1, longest / 3))).await;
        assert_eq!(bits(&alone), bits(&again));
    }
    assert!(count.load(Ordering::Relaxed) > 8);
    assert!(engine.reset_prefix_cache(false).await.unwrap(), "no sequence holds a block");
}

#[tokio::test]
async fn logits_that_are_no_numbers_end_their_sequences_with_an_error() {
    let (engine, count) = engine(true, DType::F32, 200, 8);
    replace(&engine, vec![norm(f32::NAN)]).await.unwrap();
    let asked = request(&[3, 5, 8], SamplingParams { logprobs: None, ..params(9) });
    let outputs: Vec<_> = engine.generate(asked).collect().await;
    let last = outputs.last().unwrap().as_ref().unwrap_err();
    assert_eq!(last.to_string(), EngineError::from(SampleError::NonFiniteLogits).to_string());
    assert_eq!(count.load(Ordering::Relaxed), 1, "a step was begun with what was drawn of them");
}
