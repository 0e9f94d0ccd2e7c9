//! Drafts of another model: the same bits with them and without, whatever it is, and that they are right where it is.

use std::path::PathBuf;

use super::{
    speculation::{counted, counts_of, no_bit_changes, repetitive},
    *,
};
use crate::engine::{Memory, UpdateError};

/// The settings of a model with another one that drafts. Its rows cost nothing, so that a draft is as long as others are.
pub(super) fn drafted_by(draft: &str, plain: NativeSettings) -> NativeSettings {
    let of_draft = settings(draft);
    let draft = DraftModelSettings {
        source: of_draft.source,
        config: of_draft.config,
        dtype: of_draft.dtype,
        max_model_len: 256,
    };
    let drafts = ModelDrafts { num_speculative_tokens: 5, cost: Some(0.0) };
    let drafting = Drafting::Required(Speculation::Model(drafts));
    NativeSettings { drafting, draft_model: Some(Box::new(draft)), ..plain }
}

/// The same with twice the memory, half of which a draft model of the same size takes.
fn drafted_beside(draft: &str, plain: NativeSettings) -> NativeSettings {
    let kv_cache_bytes = 2 * plain.kv_cache_bytes;
    drafted_by(draft, NativeSettings { kv_cache_bytes, ..plain })
}

fn unending(temperature: f64, max_tokens: usize) -> SequenceRequest {
    request(&[5, 17, 40], SamplingParams { ignore_eos: true, temperature, ..params(max_tokens) })
}

#[tokio::test]
async fn drafts_of_the_model_itself_change_no_bit_and_are_right() {
    let requests = repetitive(if cfg!(unoptimised) { 24 } else { 1_000 });
    let counts = no_bit_changes("llama", |plain| drafted_beside("llama", plain), &requests).await;
    for [drafts, tokens, accepted] in counts {
        assert!(drafts > 0 && accepted == tokens, "{drafts} drafts, {accepted} of {tokens}");
    }
}

#[tokio::test]
async fn drafts_of_another_model_change_no_bit_and_are_seldom_right() {
    let requests = repetitive(if cfg!(unoptimised) { 24 } else { 1_000 });
    // One with more tokens than the model has.
    let counts = no_bit_changes("llama", |plain| drafted_beside("mistral", plain), &requests).await;
    for [drafts, tokens, accepted] in counts {
        assert!(drafts > 0 && accepted < tokens, "{drafts} drafts, {accepted} of {tokens}");
    }
}

#[tokio::test]
async fn a_draft_model_with_fewer_tokens_drafts_until_there_is_one_that_it_does_not_have() {
    let requests = repetitive(if cfg!(unoptimised) { 12 } else { 200 });
    let counts = no_bit_changes("mistral", |plain| drafted_beside("llama", plain), &requests).await;
    assert!(counts.iter().all(|[drafts, tokens, accepted]| *drafts > 0 && accepted < tokens), "{counts:?}");
}

#[tokio::test]
async fn the_model_itself_drafts_what_is_sampled_at_any_temperature() {
    for temperature in [0.0, 0.7, 1.0] {
        let (engine, metrics) = counted(&drafted_by("llama", settings("llama")));
        let answer = collected(engine.generate(unending(temperature, 200))).await;
        let plain = self::engine(&settings("llama"));
        assert_eq!(bits(&answer), bits(&collected(plain.generate(unending(temperature, 200))).await));
        let [drafts, tokens, accepted] = counts_of(&metrics);
        assert_eq!((accepted, answer.1.len()), (tokens, 200), "{drafts} drafts at {temperature}");
        assert!((100..200).contains(&accepted) && drafts < 60, "{accepted} in {drafts} drafts at {temperature}");
    }
}

#[tokio::test]
async fn a_model_that_is_always_wrong_is_hardly_asked() {
    let (engine, metrics) = counted(&drafted_by("llama_heads_of_64", settings("llama")));
    let requests: Vec<_> = (0..8).map(|_| unending(0.0, 200)).collect();
    join_all(in_company(&engine, &requests).into_iter().map(collected)).await;
    let [_, tokens, accepted] = counts_of(&metrics);
    assert!(accepted * 5 < tokens, "{accepted} of {tokens}");
    assert!(tokens < 8 * 200 / 4, "{tokens}");
}

#[tokio::test]
async fn nothing_is_drafted_beyond_the_context_of_the_draft_model() {
    let mut settings = drafted_by("llama", settings("llama"));
    settings.draft_model.as_mut().unwrap().max_model_len = 20;
    let (engine, metrics) = counted(&settings);
    let answer = collected(engine.generate(unending(1.0, 200))).await;
    assert_eq!(answer.1.len(), 200);
    let [_, tokens, accepted] = counts_of(&metrics);
    // The prompt has three tokens, and the first is sampled with it.
    assert!(tokens == accepted && (8..=18).contains(&tokens), "{accepted} of {tokens}");
}

#[tokio::test]
async fn a_draft_model_whose_rows_cost_as_much_as_the_models_is_not_asked() {
    let mut settings = drafted_by("llama", settings("llama"));
    settings.drafting =
        Drafting::Required(Speculation::Model(ModelDrafts { num_speculative_tokens: 5, cost: Some(1.0) }));
    let (engine, metrics) = counted(&settings);
    assert_eq!(collected(engine.generate(unending(0.0, 50))).await.1.len(), 50);
    assert_eq!(counts_of(&metrics), [0, 0, 0]);
}

#[tokio::test]
async fn a_long_prompt_is_computed_in_pieces_once_the_answer_is_long_enough_for_that() {
    let mut settings = drafted_by("llama", NativeSettings { max_num_batched_tokens: 24, ..settings("llama") });
    settings.drafting =
        Drafting::Required(Speculation::Model(ModelDrafts { num_speculative_tokens: 5, cost: Some(0.2) }));
    let (engine, metrics) = counted(&settings);
    let prompt: Vec<TokenId> = (0..100).map(|id| id * 7 % 96).collect();
    let long =
        |max_tokens| request(&prompt, SamplingParams { ignore_eos: true, temperature: 0.0, ..params(max_tokens) });
    // A hundred tokens cost as much as twenty rows of the model, which is worth it after ten tokens.
    collected(engine.generate(long(9))).await;
    assert_eq!(counts_of(&metrics), [0, 0, 0]);
    collected(engine.generate(long(100))).await;
    let [_, tokens, accepted] = counts_of(&metrics);
    assert!(tokens == accepted && tokens > 30, "{accepted} of {tokens}");
}

#[test]
fn what_cannot_draft_is_refused_by_name() {
    let refusal = |settings: NativeSettings| NativeEngine::load(&settings, &mut |_, _| ()).err().unwrap().to_string();
    let changed = |change: fn(&mut DraftModelSettings)| {
        let mut settings = drafted_by("llama", settings("llama"));
        change(settings.draft_model.as_mut().unwrap());
        refusal(settings)
    };
    let unknown = changed(|draft| draft.config["architectures"] = serde_json::json!(["BertForMaskedLM"]));
    assert!(unknown.contains("native/llama cannot be used: the native engine does not know"), "{unknown}");
    let hybrid = changed(|draft| {
        draft.config =
            crate::engine::native::model::tests::families::Golden::named("families/qwen3_next_plain").config().clone();
    });
    assert!(hybrid.contains("recurrent states"), "{hybrid}");
    let gone = changed(|draft| draft.source = WeightsSource::Directory("/nowhere".into()));
    assert!(gone.starts_with("the draft model /nowhere cannot be used: /nowhere has no weights"), "{gone}");
    let none = NativeSettings { draft_model: None, ..drafted_by("llama", settings("llama")) };
    assert_eq!(refusal(none), "there is no draft model to draft with");
    let small = drafted_by("llama", NativeSettings { kv_cache_bytes: 100, ..settings("llama") });
    assert!(refusal(small).starts_with("a KV cache of 100 bytes is too small"));
}

/// A directory of a model of the tests.
fn directory(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/native").join(model)
}

#[tokio::test]
async fn new_weights_of_the_draft_model_change_no_bit_and_what_is_drafted() {
    let (engine, metrics) = counted(&drafted_by("llama_heads_of_64", settings("llama")));
    let expected = bits(&collected(self::engine(&settings("llama")).generate(unending(1.0, 100))).await);
    let drafted = async || {
        let before = counts_of(&metrics);
        assert_eq!(bits(&collected(engine.generate(unending(1.0, 100))).await), expected);
        let after = counts_of(&metrics);
        (after[1] - before[1], after[2] - before[2])
    };
    let (tokens, accepted) = drafted().await;
    assert!(accepted * 5 < tokens, "{accepted} of {tokens}");
    for (path, reason) in [(directory("nowhere"), "nowhere"), (directory("llama"), "embed_tokens")] {
        let refused = engine.update_draft(path).await.unwrap_err();
        assert!(matches!(&refused, UpdateError::Refused(said) if said.contains(reason)), "{refused}");
    }
    assert_eq!(engine.update_draft(directory("llama_heads_of_64")).await.unwrap().tensors, 21);
    assert_eq!(engine.weights().number, 0, "the model's weights are the same");
    // A draft model that was wrong is asked again.
    let (tokens, accepted) = drafted().await;
    assert!(tokens > 0 && accepted * 5 < tokens, "{accepted} of {tokens}");
}

#[tokio::test]
async fn a_draft_model_with_the_new_weights_of_the_model_is_right_again() {
    let (engine, metrics) = counted(&drafted_by("llama", settings("llama")));
    assert!(engine.has_draft_model());
    // The logits of other weights are others: what the model itself drafted before is wrong.
    replace(&engine, vec![weights::other_head(&engine)]).await.unwrap();
    collected(engine.generate(unending(0.0, 60))).await;
    let [_, tokens, accepted] = counts_of(&metrics);
    assert!(accepted * 3 < tokens, "{accepted} of {tokens}");
    weights::replace_by(&engine, weights::all_of("llama")).await.unwrap();
    engine.update_draft(directory("llama")).await.unwrap();
    let before = counts_of(&metrics);
    collected(engine.generate(unending(0.0, 60))).await;
    let after = counts_of(&metrics);
    assert!(after[1] > before[1] && after[1] - before[1] == after[2] - before[2], "{before:?} {after:?}");
}

#[tokio::test]
async fn there_are_drafts_again_after_a_sleep() {
    for memory in [vec![Memory::KvCache], vec![Memory::KvCache, Memory::Weights]] {
        let (engine, metrics) = counted(&drafted_by("llama", settings("llama")));
        let expected = bits(&collected(engine.generate(unending(1.0, 60))).await);
        for part in &memory {
            engine.discard(*part).await.unwrap();
        }
        let asleep = engine.update_draft(directory("llama")).await;
        assert_eq!(asleep.is_err(), memory.contains(&Memory::Weights), "{asleep:?}");
        for part in memory.iter().rev() {
            engine.restore(*part).await.unwrap();
        }
        if memory.contains(&Memory::Weights) {
            weights::replace_by(&engine, weights::all_of("llama")).await.unwrap();
        }
        let before = counts_of(&metrics);
        assert_eq!(bits(&collected(engine.generate(unending(1.0, 60))).await), expected);
        let after = counts_of(&metrics);
        assert!(after[1] > before[1] && after[1] - before[1] == after[2] - before[2], "{before:?} {after:?}");
    }
}

#[tokio::test]
async fn without_a_draft_model_its_weights_are_refused() {
    let engine = engine(&settings("llama"));
    assert!(!engine.has_draft_model());
    let refused = engine.update_draft(directory("llama")).await.unwrap_err();
    assert_eq!(refused.to_string(), "there is no draft model here");
}

/// A file of safetensors with one tensor, all numbers of which are not numbers.
fn not_numbers(name: &str, shape: &[usize]) -> tempfile::NamedTempFile {
    let bytes = f32::NAN.to_le_bytes().repeat(shape.iter().product());
    let header =
        serde_json::json!({ name: {"dtype": "F32", "shape": shape, "data_offsets": [0, bytes.len()]} }).to_string();
    let file = tempfile::Builder::new().suffix(".safetensors").tempfile().unwrap();
    std::fs::write(file.path(), [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &bytes].concat())
        .unwrap();
    file
}

#[tokio::test]
async fn a_draft_model_that_computes_no_numbers_drafts_nothing_and_ends_no_request() {
    let expected = bits(&collected(self::engine(&settings("llama")).generate(unending(1.0, 60))).await);
    // Its logits alone, or what it keeps of a sequence too.
    for (name, shape) in [("model.norm.weight", &[64][..]), ("model.embed_tokens.weight", &[96, 64])] {
        let (engine, metrics) = counted(&drafted_by("llama", settings("llama")));
        engine.update_draft(not_numbers(name, shape).path().to_owned()).await.unwrap();
        assert_eq!(bits(&collected(engine.generate(unending(1.0, 60))).await), expected);
        assert_eq!(counts_of(&metrics), [0, 0, 0]);
        engine.update_draft(directory("llama")).await.unwrap();
        assert_eq!(bits(&collected(engine.generate(unending(1.0, 60))).await), expected);
        let [_, tokens, accepted] = counts_of(&metrics);
        assert!(tokens > 0 && tokens == accepted, "{accepted} of {tokens}");
    }
}

/// The settings of a model with a GGUF file that drafts, of which blocks and codes are kept or not. It has eight tokens.
fn drafted_by_file(keep_blocks: bool) -> NativeSettings {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/gguf_mxfp4/model.gguf");
    let mut drafted = drafted_by("llama", settings("llama"));
    let draft = drafted.draft_model.as_mut().unwrap();
    draft.config = crate::gguf::GgufFile::open(&path).unwrap().model_config().unwrap();
    draft.source = WeightsSource::Gguf { path, keep_blocks };
    draft.dtype = Dtype::Bf16;
    drafted
}

#[tokio::test]
async fn a_draft_model_may_stay_in_the_blocks_of_a_gguf_file() {
    let sampling = SamplingParams { ignore_eos: true, allowed_token_ids: Some((0..8).collect()), ..params(60) };
    let request = || request(&[5, 7, 4], sampling.clone());
    let expected = bits(&collected(self::engine(&settings("llama")).generate(request())).await);
    let mut counts = Vec::new();
    for keep_blocks in [true, false] {
        let (engine, metrics) = counted(&drafted_by_file(keep_blocks));
        assert_eq!(bits(&collected(engine.generate(request())).await), expected);
        counts.push(counts_of(&metrics));
        if !keep_blocks {
            continue;
        }
        let refused = engine.update_draft(directory("llama")).await.unwrap_err();
        assert!(
            refused.to_string().contains("stay quantised") && refused.to_string().contains("--gguf-weights widened")
        );
        for part in [Memory::KvCache, Memory::Weights] {
            engine.discard(part).await.unwrap();
        }
        for part in [Memory::Weights, Memory::KvCache] {
            engine.restore(part).await.unwrap();
        }
        weights::replace_by(&engine, weights::all_of("llama")).await.unwrap();
        let before = counts_of(&metrics);
        assert_eq!(bits(&collected(engine.generate(request())).await), expected);
        assert!(counts_of(&metrics)[1] > before[1], "it was read again: {before:?}");
    }
    assert!(counts[0][1] > 0 && counts[0] == counts[1], "blocks guess what widened weights guess: {counts:?}");
}

#[tokio::test]
async fn what_a_row_of_a_draft_model_takes_is_measured_where_it_is_not_given() {
    let cost = |cost: Option<f64>, kv_cache_bytes: u64| {
        let mut settings = drafted_by("llama", NativeSettings { kv_cache_bytes, ..settings("llama") });
        settings.drafting = Drafting::Required(Speculation::Model(ModelDrafts { num_speculative_tokens: 5, cost }));
        self::engine(&settings).draft_cost().unwrap()
    };
    let room = settings("llama").kv_cache_bytes;
    assert!((cost(Some(0.25), room) - 0.25).abs() < f64::EPSILON);
    let measured = cost(None, room);
    assert!(measured.is_finite() && measured > 0.0, "{measured}");
    assert!(cost(None, blocks("llama", 1, Dtype::Bf16)).is_infinite(), "there is no room for drafts");
    assert_eq!(self::engine(&settings("llama")).draft_cost(), None);
    assert_eq!([0.1, 0.7, 0.9].map(ModelDrafts::can_be_worth), [true, true, false]);
}
