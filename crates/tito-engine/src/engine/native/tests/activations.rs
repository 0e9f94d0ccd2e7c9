//! Weights in bf16 with activations in f32, as users of the engine see them.

use super::{speculation::NGRAM, *};

fn mixed(settings: NativeSettings) -> NativeSettings {
    NativeSettings { f32_activations: true, ..settings }
}

/// All tensors of an engine, in another type, with numbers that bf16 does not hold.
fn others(engine: &NativeEngine, dtype: WeightDtype) -> Vec<WeightTensor> {
    let tensor = |info: &TensorInfo| {
        let count = info.shape.iter().product::<usize>();
        let numbers: Vec<f32> = (0_u16..251).cycle().take(count).map(|place| f32::from(place).sin() * 0.3).collect();
        let mut bytes = vec![0; count * dtype.size()];
        dtype.narrow(&numbers, &mut bytes);
        WeightTensor { name: info.name.clone(), dtype, shape: info.shape.clone(), bytes: bytes.into() }
    };
    engine.tensors().iter().map(tensor).collect()
}

/// What an engine answers to some requests.
async fn answers(engine: &NativeEngine, requests: &[SequenceRequest]) -> Vec<Vec<Bits>> {
    let answers = join_all(in_company(engine, requests).into_iter().map(collected)).await;
    answers.iter().map(bits).collect()
}

#[tokio::test]
async fn a_bf16_checkpoint_answers_as_in_f32_with_weights_of_half_the_size() {
    for model in ["llama_tied_bias", "qwen3_moe", "llama"] {
        let requests = requests(REQUESTS.min(50));
        let bf16 = engine(&mixed(settings(model)));
        let f32 = engine(&NativeSettings { dtype: Dtype::F32, ..settings(model) });
        // Whatever the files hold, both have the same numbers now, which are those of bf16.
        for engine in [&bf16, &f32] {
            replace(engine, others(engine, WeightDtype::Bf16)).await.unwrap();
        }
        assert!(answers(&bf16, &requests).await == answers(&f32, &requests).await, "{model}");
        assert_eq!((&*bf16.info().dtype, &*f32.info().dtype), ("bf16, f32 activations", "f32"));
        let held = |engine: &NativeEngine| {
            engine.tensors().iter().map(|tensor| tensor.dtype).filter(|dtype| *dtype == WeightDtype::Bf16).count()
        };
        assert!(held(&bf16) > 0 && held(&f32) == 0, "{model}");
    }
}

#[tokio::test]
async fn weights_of_a_trainer_in_f32_are_rounded_as_without_the_flag() {
    for model in ["llama_tied_bias", "qwen3_moe"] {
        let [with, without] = [mixed(settings(model)), settings(model)].map(|settings| engine(&settings));
        for engine in [&with, &without] {
            replace(engine, others(engine, WeightDtype::F32)).await.unwrap();
        }
        assert!(weights::all_bytes(&with).await == weights::all_bytes(&without).await, "{model}");
    }
}

#[tokio::test]
async fn company_pieces_threads_and_preemption_change_no_bit() {
    for kernels in KernelSet::tested() {
        for model in ["llama", "qwen3_moe"] {
            let base = NativeSettings { kernels: Some(kernels.name()), ..mixed(settings(model)) };
            let companies = [(8, 16, 2, 2_000), (3, 64, 3, 40), (64, 33, 2, 9)];
            let companies =
                companies.map(|(seqs, tokens, threads, kv)| (seqs, tokens, threads, blocks(model, kv, Dtype::F32)));
            compare_in(&companies, &base, &requests(REQUESTS.min(50)), engine).await;
        }
    }
}

#[tokio::test]
async fn drafts_change_no_bit() {
    let plain = engine(&mixed(settings("llama")));
    let drafting = engine(&NativeSettings { drafting: Drafting::Required(NGRAM), ..mixed(settings("llama")) });
    let requests = speculation::repetitive(if cfg!(unoptimised) { 12 } else { 200 });
    assert!(answers(&plain, &requests).await == answers(&drafting, &requests).await);
}

#[test]
fn an_engine_that_would_round_them_is_not_loaded() {
    let source = WeightsSource::Coded("model".into());
    let refused = NativeEngine::load(&NativeSettings { source, ..mixed(settings("llama")) }, &mut |_, _| ());
    assert!(refused.err().unwrap().to_string().contains("--quantized-weights widened"));
}
