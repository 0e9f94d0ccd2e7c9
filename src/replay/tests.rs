use std::{collections::HashMap, time::Duration};

use serde_json::value::to_raw_value;

use super::*;
use crate::{
    engine::{Engine, EngineInfo, EngineOutput, SequenceRequest, scripted::ScriptedEngine},
    generation::Generator,
    sampling::{SamplingParams, ValidSamplingParams},
    store::{BatchStore, MemoryStore},
    structured::{Constraint, Demand, Grammars},
    tokenizer::Tokenizer,
    trajectory::{CapturePolicy, Ended, Generation, SamplingUsed, WeightsUsed},
    turn::StructuredOutputCompiler,
};

const EOS: TokenId = 2;
const PROMPT: [TokenId; 3] = [5, 6, 7];

fn tokenizer() -> Arc<Tokenizer> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-model/tokenizer.json");
    Arc::new(Tokenizer::from_file(path).unwrap())
}

fn replayer(checksum: &str) -> Replayer {
    let tokenizer = tokenizer();
    let info = EngineInfo::scripted(tokenizer.vocab_size(), 512);
    let engine = Arc::new(ScriptedEngine::hashed(info, vec![EOS]));
    Replayer {
        media: None,
        generator: Generator::new(engine, Arc::clone(&tokenizer)),
        compiler: Arc::new(StructuredOutputCompiler::new(Arc::clone(&tokenizer), [EOS])),
        tokenizer,
        adapters: HashMap::new(),
        weights: 0,
        checksum: Some(checksum.to_owned()),
        computed_by: computed_by("cpu"),
        owner: None,
        cache_salt: None,
    }
}

fn computed_by(device: &str) -> ComputedBy {
    let word = |word: &str| word.to_owned();
    ComputedBy { tito: word("1"), engine: word("scripted"), device: word(device), dtype: word("f32") }
}

fn used() -> SamplingUsed {
    SamplingUsed {
        temperature: 1.1,
        top_p: 0.95,
        top_k: 40,
        min_p: 0.01,
        presence_penalty: 0.3,
        frequency_penalty: -0.2,
        repetition_penalty: 1.1,
        logit_bias: vec![(9, 1.5)],
        allowed_token_ids: None,
        bad_words_token_ids: vec![vec![11, 12]],
        seed: Some(17),
        max_tokens: 30,
        min_tokens: 3,
        ignore_eos: true,
        eos_token_id: Some(EOS),
        extra_eos_token_ids: vec![],
        stop_token_ids: vec![],
        stop: None,
        logprobs_mode: "processed_logprobs".to_owned(),
        detects_repetition: false,
        is_constrained: false,
        gives_experts: false,
    }
}

/// What the engine samples with these parameters, without the code that is tested.
async fn sampled(engine: &dyn Engine, params: SamplingParams) -> (Vec<TokenId>, Vec<f32>) {
    let valid: ValidSamplingParams = params.validated(engine.info().vocab_size).unwrap();
    let mut outputs = engine.generate(SequenceRequest::new(PROMPT, valid));
    let (mut ids, mut logprobs) = (Vec::new(), Vec::new());
    while let Some(output) = outputs.next().await {
        if let EngineOutput::Token(token) = output.unwrap() {
            ids.push(token.id);
            logprobs.push(token.logprob);
        }
    }
    (ids, logprobs)
}

fn params() -> SamplingParams {
    SamplingParams {
        temperature: 1.1,
        top_p: 0.95,
        top_k: 40,
        min_p: 0.01,
        presence_penalty: 0.3,
        frequency_penalty: -0.2,
        repetition_penalty: 1.1,
        logit_bias: vec![(9, 1.5)],
        bad_words: vec![vec![11, 12]],
        seed: Some(17),
        max_tokens: 30,
        min_tokens: 3,
        ignore_eos: true,
        eos_token_id: Some(EOS),
        logprobs_mode: crate::sampling::LogprobsMode::Processed,
        ..SamplingParams::default()
    }
}

async fn generation() -> Generation {
    let (sampled, logprobs) = sampled(replayer("a").generator.engine(), params()).await;
    assert_eq!(sampled.len(), 30);
    Generation {
        prompt: PROMPT.into(),
        ranks: vec![1; sampled.len()],
        weights: vec![weights(0, 0, 30)],
        sampled,
        logprobs,
        process: "p".into(),
        sampling: Some(used()),
        finish: Ended::Length,
        ..Generation::default()
    }
}

fn weights(number: u64, start: usize, end: usize) -> WeightsUsed {
    WeightsUsed {
        version: number.to_string().into(),
        base_version: None,
        number,
        start,
        end,
        reuse_older_keys: false,
        checksum: None,
    }
}

fn captured(generations: impl IntoIterator<Item = Generation>) -> Trajectories {
    let store = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX)) as Arc<dyn BatchStore>;
    let policy = CapturePolicy { bytes: 1 << 24, ttl: None, texts: true, images: true };
    let trajectories = Trajectories::open(store, policy).unwrap();
    for generation in generations {
        trajectories.capture(generation).unwrap();
    }
    for (number, checksum) in [(0, "a"), (1, "b")] {
        let set =
            WeightSet { process: "p".into(), number, checksum: checksum.to_owned(), computed_by: computed_by("cpu") };
        trajectories.keep_weights(&set).unwrap();
    }
    trajectories
}

async fn outcome(replayer: &Replayer, generation: Generation) -> Outcome {
    let trajectories = captured([generation]);
    let turns: Vec<_> = replayer.replay(&trajectories, None).collect().await;
    assert_eq!(turns.len(), 1);
    turns[0].outcome.clone()
}

#[tokio::test]
async fn a_turn_comes_out_as_it_was_captured_and_every_bit_counts() {
    let replayer = replayer("a");
    let good = generation().await;
    assert_eq!(outcome(&replayer, good.clone()).await, Outcome::Equal { tokens: 30 });
    // One that its client left.
    let cut = Generation {
        sampled: good.sampled[..7].to_vec(),
        logprobs: good.logprobs[..7].to_vec(),
        ranks: vec![1; 7],
        weights: vec![weights(0, 0, 7)],
        finish: Ended::Disconnect,
        ..good.clone()
    };
    let rest = "its client left (disconnect), so its end is not compared".to_owned();
    assert_eq!(outcome(&replayer, cut).await, Outcome::Partial { tokens: 7, all: 7, rest });
    let mut one_bit = good.clone();
    one_bit.logprobs[12] = f32::from_bits(one_bit.logprobs[12].to_bits() ^ 1);
    let Outcome::Differs { index: 12, captured, again: Some(again), reasons } = outcome(&replayer, one_bit).await
    else {
        panic!("the log-prob of one token is another one")
    };
    assert_eq!((captured.0, again, reasons), (good.sampled[12], (good.sampled[12], good.logprobs[12]), vec![]));
    let mut seed = good.clone();
    seed.sampling.as_mut().unwrap().seed = Some(18);
    assert!(matches!(outcome(&replayer, seed).await, Outcome::Differs { index: 0..5, .. }));
    let longer = Generation {
        sampled: [&good.sampled[..], &[1]].concat(),
        logprobs: [&good.logprobs[..], &[-1.0]].concat(),
        ranks: vec![1; 31],
        weights: vec![weights(0, 0, 31)],
        ..good
    };
    assert!(matches!(outcome(&replayer, longer).await, Outcome::Differs { index: 30, again: None, .. }));
}

#[tokio::test]
async fn sampling_masks_are_compared_and_one_id_counts() {
    let replayer = replayer("a");
    let vocab_size = replayer.generator.engine().info().vocab_size;
    // Greedily, a log-prob is that over the mask, which is zero, and without a mask the model's own.
    for (temperature, rows) in [(1.1, 2..=40), (0.0, 1..=1)] {
        let masked = SamplingParams { sampling_mask: Some(vocab_size), temperature, ..params() };
        let mut outputs =
            replayer.generator.engine().generate(SequenceRequest::new(PROMPT, masked.validated(vocab_size).unwrap()));
        let (mut sampled, mut logprobs, mut masks) = (Vec::new(), Vec::new(), PackedMasks::default());
        while let Some(output) = outputs.next().await {
            if let EngineOutput::Token(token) = output.unwrap() {
                sampled.push(token.id);
                logprobs.push(token.logprob);
                masks.push(&token.sampling_mask.unwrap());
            }
        }
        assert!(masks.rows().any(|row| rows.contains(&row.len())));
        let mut good = Generation { sampled, logprobs, masks, ..generation().await };
        good.sampling.as_mut().unwrap().temperature = temperature;
        assert_eq!(outcome(&replayer, good.clone()).await, Outcome::Equal { tokens: 30 });
        let mut more = good.clone();
        let rows: Vec<Vec<TokenId>> = good.masks.rows().map(<[_]>::to_vec).collect();
        let free = (0..1_000).find(|id| !rows[12].contains(id)).unwrap();
        more.masks = PackedMasks::default();
        for (index, mut row) in rows.into_iter().enumerate() {
            if index == 12 {
                row.push(free);
                row.sort_unstable();
            }
            more.masks.push(&row);
        }
        let other = Outcome::MaskDiffers { index: 12, captured: vec![free], again: vec![], reasons: vec![] };
        assert_eq!(outcome(&replayer, more.clone()).await, other);
        // What comes first is what is named.
        more.logprobs[20] += 1.0;
        assert_eq!(outcome(&replayer, more.clone()).await, other);
        more.logprobs[3] += 1.0;
        assert!(matches!(outcome(&replayer, more).await, Outcome::Differs { index: 3, .. }));
    }
}

#[tokio::test]
async fn what_is_known_to_be_different_is_named() {
    let mut wrong = generation().await;
    wrong.logprobs[0] -= 1.0;
    let mut other = replayer("z");
    other.computed_by = computed_by("cpu (other)");
    let Outcome::Differs { reasons, .. } = outcome(&other, wrong.clone()).await else { panic!("it differs") };
    assert_eq!(
        reasons,
        ["the checksum of the weights: a then, z now", "the device and its kernels: cpu then, cpu (other) now"]
    );
    wrong.process = "unknown".into();
    let Outcome::Differs { reasons, .. } = outcome(&other, wrong).await else { panic!("it differs") };
    assert_eq!(reasons, ["nobody knows which weights sampled it: no checksum of them was kept"]);
}

#[tokio::test]
async fn of_a_turn_of_several_weights_their_part_is_proven() {
    let split = Generation { weights: vec![weights(0, 0, 10), weights(1, 10, 30)], ..generation().await };
    let Outcome::Partial { tokens: 10, all: 30, rest } = outcome(&replayer("a"), split.clone()).await else {
        panic!("other weights ended it")
    };
    assert!(rest.contains("weights were replaced"));
    let Outcome::Unrepeatable(reason) = outcome(&replayer("b"), split).await else { panic!("others began it") };
    assert!(reason.contains("its first 10 tokens were sampled by others"));
}

#[tokio::test]
async fn weights_that_were_given_another_name_are_the_same_weights() {
    let renamed = WeightsUsed { version: "step-1".into(), ..weights(0, 10, 20) };
    let good = generation().await;
    let twice = Generation { weights: vec![weights(0, 0, 10), renamed.clone(), weights(0, 20, 30)], ..good.clone() };
    assert_eq!(outcome(&replayer("a"), twice).await, Outcome::Equal { tokens: 30 });
    let replaced = Generation { weights: vec![weights(0, 0, 10), renamed, weights(1, 20, 30)], ..good.clone() };
    assert!(matches!(outcome(&replayer("a"), replaced).await, Outcome::Partial { tokens: 20, all: 30, .. }));
    let reads_older = WeightsUsed { reuse_older_keys: true, ..weights(0, 0, 30) };
    let Outcome::Unrepeatable(reason) =
        outcome(&replayer("a"), Generation { weights: vec![reads_older], ..good }).await
    else {
        panic!("nobody has the keys of older weights")
    };
    assert!(reason.contains("keys and values that older ones wrote"));
}

/// The turn that comes out equal, but for how it is said to have ended, and how many tokens it might have had.
fn ending(good: &Generation, finish: Ended, max_tokens: usize) -> Generation {
    let mut generation = Generation { finish, ..good.clone() };
    generation.sampling.as_mut().unwrap().max_tokens = max_tokens;
    generation
}

#[tokio::test]
async fn a_turn_that_ends_otherwise_is_not_equal() {
    let (replayer, good) = (replayer("a"), generation().await);
    assert_eq!(outcome(&replayer, ending(&good, Ended::Length, 30)).await, Outcome::Equal { tokens: 30 });
    for (captured, max_tokens, again) in [
        (Ended::Length, 40, "it goes on now"),
        (Ended::Eos, 40, "it goes on now"),
        (Ended::Eos, 30, "it is length now"),
        (Ended::StopToken, 30, "it is length now"),
    ] {
        let other = Outcome::Ends { captured, again: again.to_owned(), reasons: vec![] };
        assert_eq!(outcome(&replayer, ending(&good, captured, max_tokens)).await, other, "{captured:?} {max_tokens}");
    }
    // Its last token ends it, at the most tokens too.
    let last = good.sampled[29];
    assert!(!good.sampled[..29].contains(&last), "an earlier token would end it");
    for max_tokens in [30, 40] {
        let mut stopped = ending(&good, Ended::StopToken, max_tokens);
        stopped.sampling.as_mut().unwrap().stop_token_ids = vec![last];
        assert_eq!(outcome(&replayer, stopped.clone()).await, Outcome::Equal { tokens: 30 });
        let other = Outcome::Ends { captured: Ended::Eos, again: "it is stop_token now".to_owned(), reasons: vec![] };
        assert_eq!(outcome(&replayer, Generation { finish: Ended::Eos, ..stopped }).await, other);
    }
}

#[tokio::test]
async fn an_end_that_nobody_can_see_again_is_not_proven() {
    let (replayer, good) = (replayer("a"), generation().await);
    for (finish, why) in [
        (Ended::Abort, "the server ended it (abort)"),
        (Ended::Disconnect, "its client left (disconnect)"),
        (Ended::Error, "the engine failed (error)"),
        (Ended::Repetition, "what counts as a repetition was not kept"),
        (Ended::StopString, "its stop strings were not kept (--capture-texts false)"),
    ] {
        let rest = format!("{why}, so its end is not compared");
        let partial = Outcome::Partial { tokens: 30, all: 30, rest };
        assert_eq!(outcome(&replayer, ending(&good, finish, 40)).await, partial, "{finish:?}");
    }
}

#[tokio::test]
async fn a_stop_string_is_looked_for_where_the_turn_ends() {
    // Letters only, so that each has its text at once.
    let letters: Vec<TokenId> = (67..=92).collect();
    let replayer = replayer("a");
    let only = SamplingParams { allowed_token_ids: Some(letters.clone()), ..params() };
    let (sampled, logprobs) = sampled(replayer.generator.engine(), only).await;
    let text = replayer.tokenizer.decode(&sampled, false).unwrap();
    let sampling = SamplingUsed { allowed_token_ids: Some(letters), max_tokens: 40, ..used() };
    let good = Generation { sampled, logprobs, sampling: Some(sampling), ..generation().await };
    let stopped = async |stop: &str| {
        let mut generation = Generation { finish: Ended::StopString, ..good.clone() };
        generation.sampling.as_mut().unwrap().stop = Some(vec!["never said".to_owned(), stop.to_owned()]);
        outcome(&replayer, generation).await
    };
    let other = |again: &str| {
        let again = again.to_owned();
        Outcome::Ends { captured: Ended::StopString, again, reasons: vec![] }
    };
    // No stop string counts that begins in the first three tokens, `min_tokens`.
    assert_eq!(stopped(&text[3..]).await, Outcome::Equal { tokens: 30 });
    assert_eq!(stopped(&text).await, other("no token completes a stop string now"));
    assert_eq!(stopped(&text[3..29]).await, other("token 28 completes a stop string now"));
    assert_eq!(stopped("nor this").await, other("no token completes a stop string now"));
}

#[tokio::test]
async fn what_cannot_be_sampled_again_says_why() {
    let good = generation().await;
    let replayer = replayer("a");
    let change = |change: &dyn Fn(&mut SamplingUsed)| {
        let mut generation = good.clone();
        change(generation.sampling.as_mut().unwrap());
        generation
    };
    for (generation, reason) in [
        (change(&|used| used.gives_experts = true), "through which experts"),
        (change(&|used| used.seed = None), "its seed is not known"),
        (change(&|used| used.is_constrained = true), "its grammar was not kept"),
        (change(&|used| used.logprobs_mode = "other".to_owned()), "logprobs_mode"),
        (change(&|used| used.top_p = 7.0), "top_p must be in (0, 1]"),
        (Generation { sampling: None, ..good.clone() }, "its sampling was not kept"),
    ] {
        let Outcome::Unrepeatable(told) = outcome(&replayer, generation).await else { panic!("{reason}") };
        assert!(told.contains(reason), "{told}");
    }
}

#[tokio::test]
async fn what_other_weights_sample_now_is_not_compared() {
    let (mut replayer, good) = (replayer("a"), generation().await);
    replayer.weights = 1;
    let Outcome::Unrepeatable(reason) = outcome(&replayer, good).await else { panic!("others sampled it now") };
    assert!(reason.contains("weights were replaced while it was sampled again"), "{reason}");
}

#[tokio::test]
async fn a_turn_that_is_longer_than_the_context_now_is_refused() {
    let good = generation().await;
    let mut shorter = replayer("a");
    let info = EngineInfo::scripted(shorter.tokenizer.vocab_size(), 32);
    let engine = Arc::new(ScriptedEngine::hashed(info, vec![EOS]));
    shorter.generator = Generator::new(engine, Arc::clone(&shorter.tokenizer));
    let Outcome::Unrepeatable(reason) = outcome(&shorter, good).await else { panic!("it has 33 ids") };
    assert_eq!(reason, "it may have 33 ids, and the context is 32 (--max-model-len)");
}

#[tokio::test]
async fn a_grammar_is_compiled_again() {
    let replayer = replayer("a");
    let demand = Demand {
        constraint: Some(Constraint::Regex("[ab]{4}".to_owned())),
        reasoning_end: None,
        budget: None,
        single_call: None,
    };
    let compiled =
        demand.compile(&Grammars::new(tokenizer(), [EOS]), replayer.generator.engine().info().vocab_size).unwrap();
    let params = SamplingParams { constraint: compiled, ignore_eos: false, min_tokens: 0, ..params() };
    let (sampled, logprobs) = sampled(replayer.generator.engine(), params).await;
    let generation = Generation {
        ranks: vec![1; sampled.len()],
        weights: vec![weights(0, 0, sampled.len())],
        sampling: Some(SamplingUsed { is_constrained: true, ignore_eos: false, min_tokens: 0, ..used() }),
        demand: Some(to_raw_value(&demand).unwrap()),
        finish: Ended::Eos,
        sampled,
        logprobs,
        ..generation().await
    };
    let free = Generation { demand: None, ..generation.clone() };
    assert!(matches!(outcome(&replayer, generation).await, Outcome::Equal { .. }));
    assert!(matches!(outcome(&replayer, free).await, Outcome::Unrepeatable(_)));
}
