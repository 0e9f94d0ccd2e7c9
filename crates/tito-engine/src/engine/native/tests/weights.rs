//! Weights that are replaced under sequences that run.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;

use super::{super::*, bits, collected, engine, params, request, settings};
use crate::engine::{
    FinishReason, Memory, NewWeights, OnWeightsChange, SamplingParams, UndoPolicy, UpdateError, WeightDtype,
    WeightTensor, WeightVersion,
};

/// The tensors of the final norm, all numbers the same.
pub(super) fn norm(value: f32) -> Vec<WeightTensor> {
    vec![WeightTensor {
        name: "model.norm.weight".to_owned(),
        dtype: WeightDtype::F32,
        shape: vec![64],
        bytes: value.to_le_bytes().repeat(64).into(),
    }]
}

/// All tensors of a model of the tests.
pub(super) fn all_of(model: &str) -> NewWeights {
    let WeightsSource::Directory(path) = settings(model).source else { unreachable!("a directory") };
    NewWeights::Path(path)
}

/// Another head for a model of 96 tokens.
pub(super) fn other_head(engine: &NativeEngine) -> WeightTensor {
    let tensors = engine.tensors();
    let TensorInfo { name, shape, .. } = tensors.iter().find(|tensor| tensor.name == "lm_head.weight").unwrap();
    let numbers = u16::try_from(shape[0] * shape[1]).unwrap();
    WeightTensor {
        name: name.clone(),
        dtype: WeightDtype::F32,
        shape: shape.clone(),
        bytes: (0..numbers).map(|place| (f32::from(place) * 1.7).sin()).flat_map(f32::to_le_bytes).collect(),
    }
}

/// Replaces weights in one go.
pub(in crate::engine::native) async fn replace(
    engine: &NativeEngine,
    tensors: Vec<WeightTensor>,
) -> Result<Arc<WeightVersion>, UpdateError> {
    replace_by(engine, NewWeights::Tensors(tensors)).await
}

/// The same with weights of any kind.
pub(super) async fn replace_by(engine: &NativeEngine, weights: NewWeights) -> Result<Arc<WeightVersion>, UpdateError> {
    engine.begin_update(UndoPolicy::Memory).await?;
    engine.write_weights(weights).await?;
    engine.finish_update(None, OnWeightsChange::Recompute).await
}

/// An engine whose sequences pause after a few tokens that nobody has read, so that none is at its end too early.
fn patient() -> NativeEngine {
    engine(&settings("llama")).with_backlog(BacklogBounds { sequence: 400, ..BacklogBounds::default() })
}

/// The bytes of all tensors.
pub(super) async fn all_bytes(engine: &NativeEngine) -> Vec<(String, Vec<u8>)> {
    let names = engine.tensors().iter().map(|tensor| tensor.name.clone()).collect();
    let read = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&read);
    let visit = move |tensor: &TensorInfo, bytes: Vec<u8>| kept.lock().push((tensor.name.clone(), bytes));
    engine.read_weights_amid_update(names, Box::new(visit)).await.unwrap();
    std::mem::take(&mut *read.lock())
}

/// All tensors of a model, with these bytes.
pub(super) fn whole_model(engine: &NativeEngine, bytes: Vec<(String, Vec<u8>)>) -> Vec<WeightTensor> {
    let tensor = |(tensor, (name, bytes)): (&TensorInfo, (String, Vec<u8>))| WeightTensor {
        name,
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
        bytes: bytes.into(),
    };
    engine.tensors().iter().zip(bytes).map(tensor).collect()
}

fn prompt() -> SequenceRequest {
    request(&[9; 64], params(8))
}

fn endless() -> SequenceRequest {
    request(&[9; 64], SamplingParams { ignore_eos: true, ..params(150) })
}

/// The labels of the weights that a stream names, each with the number of tokens before it.
async fn labels(stream: TokenStream) -> (Vec<(usize, String, bool)>, usize, FinishReason) {
    let (mut labels, mut tokens, mut end) = (Vec::new(), 0, None);
    for output in stream.collect::<Vec<_>>().await {
        match output.unwrap() {
            EngineOutput::Weights(weights) => {
                labels.push((tokens, weights.version.label.to_string(), weights.reuse_older_keys));
            }
            EngineOutput::Token(_) => tokens += 1,
            EngineOutput::Finished(reason) => end = Some(reason),
            EngineOutput::Prompt(_) | EngineOutput::Routes(_) | EngineOutput::Times(_) => {}
        }
    }
    (labels, tokens, end.expect("a stream says how it ended"))
}

#[tokio::test]
async fn new_weights_take_effect_at_once_and_old_blocks_are_not_used() {
    let engine = engine(&settings("llama"));
    let generate = || collected(engine.generate(prompt()));
    replace(&engine, norm(1.0)).await.unwrap();
    let first = generate().await;
    assert_eq!(replace(&engine, norm(0.5)).await.unwrap().number, 2);
    let mut stream = engine.generate(prompt());
    let Some(Ok(EngineOutput::Prompt(output))) = stream.next().await else { panic!("cached tokens come first") };
    assert_eq!(output.cached_tokens, 0);
    assert_ne!(bits(&collected(stream).await), bits(&first));
    assert_eq!((replace(&engine, norm(1.0)).await.unwrap().number, engine.weights().number), (3, 3));
    assert_eq!(bits(&generate().await), bits(&first));
}

#[tokio::test]
async fn weights_that_do_not_fit_are_refused_and_leave_the_model_as_it_was() {
    let engine = engine(&settings("llama"));
    let generate = || collected(engine.generate(prompt()));
    let (before, bytes) = (generate().await, all_bytes(&engine).await);
    let misshapen = WeightTensor { shape: vec![32, 2], ..norm(2.0).remove(0) };
    let unknown = WeightTensor { name: "model.norm.bias".to_owned(), ..norm(2.0).remove(0) };
    let short = WeightTensor { bytes: vec![0; 4].into(), ..norm(2.0).remove(0) };
    for (tensor, what) in [(misshapen, "[32, 2]"), (unknown, "model.norm.bias"), (short, "4 bytes")] {
        let mut tensors = norm(2.0);
        tensors[0].name = "model.layers.0.input_layernorm.weight".to_owned();
        tensors.push(tensor);
        let refused = replace(&engine, tensors).await;
        assert!(matches!(&refused, Err(UpdateError::Refused(reason)) if reason.contains(what)), "{refused:?}");
    }
    assert_eq!(*engine.weights(), WeightVersion { number: 0, label: "default".into() });
    assert_eq!((bits(&generate().await), all_bytes(&engine).await), (bits(&before), bytes));
}

#[tokio::test]
async fn what_an_update_overwrote_is_put_back_to_the_bit_whenever_it_fails() {
    for (model, dtype) in [("llama", Dtype::Bf16), ("qwen3_moe", Dtype::F32), ("qwen3", Dtype::F32)] {
        let engine = engine(&NativeSettings { dtype, ..settings(model) });
        let (before, bytes) = (collected(engine.generate(prompt())).await, all_bytes(&engine).await);
        let flipped = |(name, bytes): &(String, Vec<u8>), tensor: &TensorInfo| WeightTensor {
            name: name.clone(),
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            bytes: bytes.iter().map(|byte| byte ^ 1).collect::<Vec<u8>>().into(),
        };
        let tensors: Vec<WeightTensor> =
            bytes.iter().zip(engine.tensors().iter()).map(|(read, tensor)| flipped(read, tensor)).collect();
        for given_up in [false, true] {
            engine.begin_update(UndoPolicy::Memory).await.unwrap();
            for part in tensors.chunks(3) {
                let written = engine.write_weights(NewWeights::Tensors(part.to_vec())).await.unwrap();
                assert_eq!(written.tensors, part.len());
                assert_eq!(written.bytes, part.iter().map(|tensor| tensor.bytes.len() as u64).sum::<u64>());
            }
            assert_ne!(all_bytes(&engine).await, bytes);
            if given_up {
                engine.cancel_update().await.unwrap();
            } else {
                let nowhere = NewWeights::Path("/nowhere".into());
                assert!(matches!(engine.write_weights(nowhere).await, Err(UpdateError::Refused(_))));
                let late = engine.finish_update(None, OnWeightsChange::Recompute).await;
                assert!(matches!(late, Err(UpdateError::OutOfOrder(_))), "{late:?}");
            }
            assert_eq!(all_bytes(&engine).await, bytes, "{model}");
            assert_eq!((engine.weights().number, engine.lacking()), (0, 0));
            assert_eq!(bits(&collected(engine.generate(prompt())).await), bits(&before));
        }
        // Once it is finished, what was written is what is read.
        replace(&engine, tensors.clone()).await.unwrap();
        let read = all_bytes(&engine).await;
        assert!(read.iter().zip(&tensors).all(|((_, read), tensor)| *read == tensor.bytes));
    }
}

#[tokio::test]
async fn an_update_without_a_way_back_that_fails_leaves_no_weights_to_sample_with() {
    let engine = engine(&settings("llama"));
    let bytes = all_bytes(&engine).await;
    engine.begin_update(UndoPolicy::Nothing).await.unwrap();
    engine.write_weights(NewWeights::Tensors(norm(0.5))).await.unwrap();
    let lost = engine.write_weights(NewWeights::Path("/nowhere".into())).await;
    assert!(matches!(lost, Err(UpdateError::Lost { .. })), "{lost:?}");
    assert_eq!(engine.lacking(), engine.tensors().len());
    let refused = engine.generate(prompt()).next().await;
    assert_eq!(refused, Some(Err(EngineError::WithoutWeights { missing: engine.tensors().len() })));
    // Some tensors are not enough, and the rest may come later. What is refused before it is written loses none of them.
    let all = whole_model(&engine, bytes.clone());
    let (first, rest) = all.split_at(all.len() / 2);
    replace(&engine, first.to_vec()).await.unwrap();
    assert_eq!(engine.lacking(), rest.len());
    let refused = engine.generate(prompt()).next().await;
    assert_eq!(refused, Some(Err(EngineError::WithoutWeights { missing: rest.len() })));
    engine.begin_update(UndoPolicy::Memory).await.unwrap();
    let refused = engine.write_weights(NewWeights::Path("/nowhere".into())).await;
    assert!(matches!(refused, Err(UpdateError::Refused(_))), "{refused:?}");
    assert_eq!(engine.lacking(), rest.len());
    replace(&engine, rest.to_vec()).await.unwrap();
    assert_eq!((engine.lacking(), all_bytes(&engine).await), (0, bytes));
    assert_eq!(collected(engine.generate(prompt())).await.1.len(), 8);
}

#[tokio::test]
async fn calls_in_the_wrong_order_change_nothing() {
    let engine = engine(&settings("llama"));
    let out_of_order = |outcome: Result<_, UpdateError>| matches!(outcome, Err(UpdateError::OutOfOrder(_)));
    assert!(out_of_order(engine.write_weights(NewWeights::Tensors(norm(1.0))).await.map(|_| ())));
    assert!(out_of_order(engine.finish_update(None, OnWeightsChange::Recompute).await.map(|_| ())));
    engine.cancel_update().await.unwrap();
    engine.begin_update(UndoPolicy::Memory).await.unwrap();
    assert!(out_of_order(engine.begin_update(UndoPolicy::Memory).await));
    engine.write_weights(NewWeights::Tensors(norm(1.0))).await.unwrap();
    let version = engine.finish_update(Some("seven".into()), OnWeightsChange::Recompute).await.unwrap();
    assert_eq!((version.number, &*version.label), (1, "seven"));
    // A name that nobody gives is one that no weights had.
    for (given, called) in [(Some("3"), "3"), (None, "3.1"), (None, "4")] {
        engine.begin_update(UndoPolicy::Memory).await.unwrap();
        engine.write_weights(NewWeights::Tensors(norm(1.0))).await.unwrap();
        let version = engine.finish_update(given.map(Into::into), OnWeightsChange::Recompute).await.unwrap();
        assert_eq!(&*version.label, called);
    }
    engine.relabel("seven".into()).await.unwrap();
    // An update that writes nothing gives a name, and no more.
    engine.begin_update(UndoPolicy::Memory).await.unwrap();
    let version = engine.finish_update(None, OnWeightsChange::Recompute).await.unwrap();
    assert_eq!((version.number, &*version.label), (4, "seven"));
}

#[tokio::test]
async fn every_token_says_which_weights_computed_it() {
    for (change, reuses) in [(OnWeightsChange::Recompute, false), (OnWeightsChange::Reuse, true)] {
        let engine = patient();
        let mut stream = engine.generate(endless());
        let mut begun: Vec<_> = Vec::new();
        while begun.len() < 12 {
            begun.push(stream.next().await.unwrap());
        }
        engine.begin_update(UndoPolicy::Memory).await.unwrap();
        engine.write_weights(NewWeights::Tensors(norm(0.5))).await.unwrap();
        engine.finish_update(Some("new".into()), change).await.unwrap();
        let fresh = labels(engine.generate(prompt())).await;
        assert_eq!(fresh.0, [(0, "new".to_owned(), false)], "a new sequence reads nothing old");
        let whole = futures::stream::iter(begun).chain(stream).boxed();
        let (labels, tokens, end) = labels(whole).await;
        assert_eq!((tokens, end), (150, FinishReason::Length));
        assert_eq!(labels.len(), 2, "{labels:?}");
        assert_eq!(labels[0], (0, "default".to_owned(), false));
        assert!((10..150).contains(&labels[1].0), "{labels:?}");
        assert_eq!((labels[1].1.as_str(), labels[1].2), ("new", reuses));
    }
}

/// A sequence under two versions of the weights, kept by a change or begun anew after it, has the tokens of a sequence
/// that was given the first ones as its prompt.
#[tokio::test]
async fn what_is_computed_anew_is_what_the_new_weights_alone_would_say() {
    let engine = patient();
    let greedy = |prompt: &[u32], tokens| {
        let sampling = SamplingParams { temperature: 0.0, ignore_eos: true, ..params(tokens) };
        request(prompt, sampling)
    };
    let mut stream = engine.generate(greedy(&[9; 40], 60));
    let mut before = Vec::new();
    while before.len() < 10 {
        if let Some(Ok(EngineOutput::Token(token))) = stream.next().await {
            before.push(token.id);
        }
    }
    engine.hold().await.unwrap();
    replace(&engine, norm(-1.0)).await.unwrap();
    engine.release().await.unwrap();
    let mut switched = None;
    let mut rest = before.clone();
    while let Some(output) = stream.next().await {
        match output.unwrap() {
            EngineOutput::Weights(_) => switched = Some(rest.len()),
            EngineOutput::Token(token) => rest.push(token.id),
            _ => {}
        }
    }
    let switched = switched.expect("the weights changed in time");
    let prompt: Vec<u32> = [9; 40].iter().chain(&rest[..switched]).copied().collect();
    let alone = collected(engine.generate(greedy(&prompt, 60 - switched))).await;
    let alone: Vec<u32> = alone.1.iter().map(|token| token.id).collect();
    assert_eq!(rest[switched..], alone);
}

#[tokio::test]
async fn an_engine_that_is_held_computes_nothing_and_loses_nothing() {
    let engine = engine(&settings("llama"));
    let expected = collected(engine.generate(endless())).await;
    engine.hold().await.unwrap();
    let mut held = engine.generate(endless());
    assert!(futures::FutureExt::now_or_never(held.next()).is_none());
    // Commands are obeyed in order: nothing was computed before this one is answered.
    assert!(engine.reset_prefix_cache(false).await.is_ok());
    assert!(futures::FutureExt::now_or_never(held.next()).is_none());
    assert_eq!((engine.load().running, engine.load().waiting), (0, 1));
    engine.release().await.unwrap();
    assert_eq!(bits(&collected(held).await), bits(&expected));
}

#[tokio::test]
async fn memory_that_was_given_back_is_filled_again_and_sequences_go_on() {
    let engine = patient();
    let expected = collected(engine.generate(endless())).await;
    let bytes = all_bytes(&engine).await;
    let mut stream = engine.generate(endless());
    let first: Vec<_> = vec![stream.next().await.unwrap(), stream.next().await.unwrap(), stream.next().await.unwrap()];
    engine.discard(Memory::KvCache).await.unwrap();
    engine.discard(Memory::Weights).await.unwrap();
    assert_eq!(engine.lacking(), engine.tensors().len());
    let too_early = engine.begin_update(UndoPolicy::Memory).await;
    assert!(matches!(too_early, Err(UpdateError::OutOfOrder(_))), "{too_early:?}");
    engine.restore(Memory::Weights).await.unwrap();
    replace(&engine, whole_model(&engine, bytes)).await.unwrap();
    assert_eq!(engine.lacking(), 0);
    engine.restore(Memory::KvCache).await.unwrap();
    let whole = futures::stream::iter(first).chain(stream).boxed();
    assert_eq!(bits(&collected(whole).await), bits(&expected));
}

#[tokio::test]
async fn weights_change_under_a_running_generation_without_losing_it() {
    let engine = patient();
    let mut stream = engine.generate(endless());
    assert!(matches!(stream.next().await, Some(Ok(EngineOutput::Prompt(_)))));
    replace(&engine, norm(0.5)).await.unwrap();
    let (_, tokens, end) = collected(stream).await;
    assert_eq!((tokens.len(), end), (150, FinishReason::Length));
}

/// The way back of a server that was started with a file, whose weights were given back.
#[tokio::test]
async fn a_gguf_file_is_read_again_as_at_the_start() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/gguf_mxfp4/model.gguf");
    let config = crate::gguf::GgufFile::open(&path).unwrap().model_config().unwrap();
    let source = WeightsSource::Gguf { path: path.clone(), keep_blocks: false };
    for dtype in [Dtype::Bf16, Dtype::F32] {
        let engine =
            engine(&NativeSettings { source: source.clone(), config: config.clone(), dtype, ..settings("llama") });
        let bytes = all_bytes(&engine).await;
        engine.check_whole(path.clone()).await.unwrap();
        engine.lose_weights().await.unwrap();
        replace_by(&engine, NewWeights::Path(path.clone())).await.unwrap();
        assert_eq!(all_bytes(&engine).await, bytes);
    }
}

#[tokio::test]
async fn a_gguf_file_of_a_model_with_other_settings_is_refused_by_their_names() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/gguf_mxfp4/model.gguf");
    let own = crate::gguf::GgufFile::open(&path).unwrap().model_config().unwrap();
    let source = WeightsSource::Gguf { path: path.clone(), keep_blocks: false };
    for (name, value, is_refused) in [
        ("rope_theta", json!(50.0), true),
        ("rms_norm_eps", json!(0.5), true),
        ("sliding_window", json!(7), true),
        ("eos_token_id", json!(3), false),
    ] {
        let mut config = own.clone();
        config.insert(name.to_owned(), value);
        let engine = engine(&NativeSettings { source: source.clone(), config, ..settings("llama") });
        let bytes = all_bytes(&engine).await;
        let checked = engine.check_whole(path.clone()).await;
        engine.begin_update(UndoPolicy::Memory).await.unwrap();
        let written = engine.write_weights(NewWeights::Path(path.clone())).await.map(|_| ());
        if is_refused {
            for refusal in [checked, written] {
                let Err(UpdateError::Refused(reason)) = refusal else { panic!("{name}: {refusal:?}") };
                assert!(reason.contains(&format!("other settings than the one that is served: `{name}`,")), "{reason}");
            }
            assert_eq!(all_bytes(&engine).await, bytes);
        } else {
            checked.and(written).unwrap();
        }
    }
}
