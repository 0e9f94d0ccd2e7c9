//! Adapters, as those who ask for them see them.

use super::{
    super::*,
    recurrent::{bytes, hybrid, settings_of},
    *,
};
use crate::engine::{Adapter, native::model::tests::adapters::Adapted};

/// Attention, and attention beside recurrent states.
const MODELS: [&str; 2] = ["mistralrs/llama", "families/qwen3_next_plain"];
const ADAPTERS: u64 = 8;

pub(super) fn with_slots(max_loras: usize, settings: NativeSettings) -> NativeSettings {
    NativeSettings { adapters: Some(AdapterLimits { max_loras, max_lora_rank: 8 }), ..settings }
}

/// An engine with room for so many adapters at a time, and adapters of its model.
fn served(model: &str, max_loras: usize) -> (NativeEngine, Vec<Arc<Adapter>>) {
    let adapted = Adapted::named(model);
    let engine = hybrid(&adapted.golden, &with_slots(max_loras, settings_of(&adapted.golden)));
    (engine, adapters(&adapted))
}

fn adapters(adapted: &Adapted) -> Vec<Arc<Adapter>> {
    (0..ADAPTERS).map(|seed| Adapter::new(&format!("a{seed}"), 1, adapted.adapter(Some(seed)))).collect()
}

pub(super) fn with(adapter: Option<&Arc<Adapter>>, request: SequenceRequest) -> SequenceRequest {
    SequenceRequest { adapter: adapter.cloned(), ..request }
}

#[tokio::test]
async fn company_of_other_adapters_cache_pieces_and_preemption_change_no_bit() {
    for model in MODELS {
        let adapted = Adapted::named(model);
        let adapters = adapters(&adapted);
        let mut random = Random::seeded(1);
        let requests = requests(REQUESTS.min(300)).into_iter().map(|request| {
            let chosen = adapters.get(random.below(9) as usize);
            with(chosen, request)
        });
        let requests: Vec<SequenceRequest> = requests.collect();
        let few = bytes(&adapted.golden, 8, 6);
        // Sequences, tokens of a step, threads, bytes of the cache.
        let companies = [(64, 512, 1, 64 << 20), (8, 16, 2, 64 << 20), (5, 64, 3, few), (64, 33, 2, few)];
        for (company, max_loras) in companies.into_iter().zip([8, 2, 3, 1]) {
            let base = with_slots(max_loras, settings_of(&adapted.golden));
            compare_in(&[company], &base, &requests, |settings| hybrid(&adapted.golden, settings)).await;
        }
    }
}

#[tokio::test]
async fn what_is_cached_is_found_by_the_same_adapter_only() {
    for model in MODELS {
        let (engine, adapters) = served(model, 2);
        let prompt: Vec<TokenId> = (0..90).collect();
        let again = Adapter::new("a0", 2, adapters[0].weights().clone());
        let asked = |adapter: Option<&Arc<Adapter>>| with(adapter, request(&prompt, params(1)));
        for adapter in [None, Some(&adapters[0]), Some(&adapters[1]), Some(&again)] {
            assert_eq!(prompt_output(&engine, asked(adapter)).await.cached_tokens, 0, "{adapter:?}");
        }
        for adapter in [None, Some(&adapters[0]), Some(&adapters[1]), Some(&again)] {
            assert!(prompt_output(&engine, asked(adapter)).await.cached_tokens >= 64, "{adapter:?}");
        }
    }
}

#[tokio::test]
async fn tokens_say_which_adapter_sampled_them_and_an_update_of_the_base_leaves_it() {
    let (engine, adapters) = served(MODELS[0], 1);
    let label = |output| match output {
        Some(Ok(EngineOutput::Weights(in_use))) => (in_use.version.number, in_use.version.label.to_string()),
        other => panic!("{other:?}"),
    };
    let said = async |adapter: Option<&Arc<Adapter>>| {
        let outputs = engine.generate(with(adapter, request(&[5, 6, 7], params(2))));
        let mut outputs = outputs.filter(|output| std::future::ready(matches!(output, Ok(EngineOutput::Weights(_)))));
        label(outputs.next().await)
    };
    assert_eq!(said(None).await, (0, "default".to_owned()));
    assert_eq!(said(Some(&adapters[3])).await, (0, "a3@1".to_owned()));
    let asked = || with(Some(&adapters[3]), request(&(0..70).collect::<Vec<_>>(), params(5)));
    let before = bits(&collected(engine.generate(asked())).await);
    replace(&engine, halves(&engine)).await.unwrap();
    assert_eq!(said(Some(&adapters[3])).await, (1, "a3@1".to_owned()));
    assert_ne!(bits(&collected(engine.generate(asked())).await), before);
}

/// Other numbers for one tensor of the base.
fn halves(engine: &NativeEngine) -> Vec<WeightTensor> {
    let norm = engine.tensors().iter().find(|tensor| tensor.name == "model.norm.weight").unwrap().clone();
    let halves = 0.5_f32.to_le_bytes().repeat(norm.shape[0]);
    vec![WeightTensor { name: norm.name, dtype: WeightDtype::F32, shape: norm.shape, bytes: halves.into() }]
}

#[tokio::test]
async fn a_base_that_changes_under_an_adapter_is_told_by_its_name() {
    let (engine, adapters) = served(MODELS[0], 1);
    let engine = engine.with_backlog(BacklogBounds { sequence: 4, ..BacklogBounds::default() });
    let asked = with(Some(&adapters[3]), request(&[5, 6, 7], SamplingParams { ignore_eos: true, ..params(150) }));
    let mut outputs = engine.generate(asked);
    let mut told = Vec::new();
    // Each change waits for the reader, who waits for it in turn.
    for change in 0..3 {
        while told.len() <= change {
            if let EngineOutput::Weights(in_use) = outputs.next().await.unwrap().unwrap() {
                told.push(in_use);
            }
        }
        match change {
            0 => drop(replace(&engine, halves(&engine)).await.unwrap()),
            1 => engine.relabel("step-7".into()).await.unwrap(),
            _ => {}
        }
    }
    let told = told.iter().map(|in_use| (in_use.version.number, &*in_use.version.label, in_use.base.as_deref()));
    let expected = [(0, "a3@1", Some("default")), (1, "a3@1", Some("1")), (1, "a3@1", Some("step-7"))];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    let mut of_base = engine.generate(request(&[5, 6, 7], params(1)));
    loop {
        if let EngineOutput::Weights(in_use) = of_base.next().await.unwrap().unwrap() {
            assert_eq!((&*in_use.version.label, in_use.base), ("step-7", None));
            return;
        }
    }
}

#[tokio::test]
async fn a_forgotten_adapter_serves_those_who_have_it() {
    let (engine, adapters) = served(MODELS[0], 1);
    let asked = |adapter| with(Some(adapter), request(&(0..40).collect::<Vec<_>>(), params(60)));
    let expected = bits(&collected(engine.generate(asked(&adapters[0]))).await);
    let mut running = engine.generate(asked(&adapters[0]));
    let mut begun = Vec::new();
    while begun.len() < 4 {
        begun.push(running.next().await.unwrap());
    }
    EngineAdapters::forget(&engine, adapters[0].id());
    // Another one wants its place meanwhile.
    let other = engine.generate(asked(&adapters[1]));
    let rest = stream::iter(begun).chain(running).boxed();
    let (found, other) = futures::join!(collected(rest), collected(other));
    assert_eq!(bits(&found), expected);
    let alone = served(MODELS[0], 1);
    assert_eq!(bits(&other), bits(&collected(alone.0.generate(asked(&alone.1[1]))).await));
}

#[tokio::test]
async fn an_engine_without_adapters_refuses_them() {
    let (_, adapters) = served(MODELS[0], 1);
    let plain = engine(&settings("llama"));
    assert!(Engine::adapters(&plain).is_none());
    let outputs: Vec<_> = plain.generate(with(Some(&adapters[0]), request(&[1], params(1)))).collect().await;
    let [Err(EngineError::Unsupported(reason))] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(reason, "the native engine serves no adapters here");
}
