//! Drafts: the same bits with them and without, and that they are there.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;

use super::{recurrent, routes::routed, *};
use crate::engine::native::{model::tests::families::Golden, plan};

const LOOKUP: NgramLookup =
    NgramLookup { num_speculative_tokens: 5, prompt_lookup_max: 3, prompt_lookup_min: 1, timed: false };
pub(in crate::engine::native) const NGRAM: Speculation = Speculation::Ngram(LOOKUP);

/// Requests whose prompts and outputs repeat themselves often enough for drafts, with what makes a draw depend on the
/// tokens before it.
pub(super) fn repetitive(count: u32) -> Vec<SequenceRequest> {
    let mut random = Random::seeded(20);
    let one = |number: u32| {
        let period = random.below(5) + 2;
        let max_tokens = random.below(70) as usize + 1;
        let prompt: Vec<TokenId> = (0..=random.below(90)).map(|place| (place % period * 11) % 96).collect();
        let sampling = SamplingParams {
            temperature: [0.0, 0.7, 1.0][number as usize % 3],
            seed: Some(u64::from(number)),
            presence_penalty: [0.0, 0.0, 0.5][random.below(3) as usize],
            frequency_penalty: [0.0, 0.0, 0.3][random.below(3) as usize],
            repetition_penalty: [1.0, 1.0, 1.2][random.below(3) as usize],
            min_tokens: (random.below(4) as usize).min(max_tokens),
            stop_token_ids: if random.below(3) == 0 { (0..96).step_by(13).collect() } else { Vec::new() },
            ignore_eos: random.below(2) == 0,
            // Few tokens to choose from make sampled text repeat itself too.
            allowed_token_ids: (random.below(2) == 0).then(|| vec![3, 5, 8, 13, 26]),
            ..params(max_tokens)
        };
        SequenceRequest { prompt_logprobs: (random.below(8) == 0).then_some(2), ..request(&prompt, sampling) }
    };
    (0..count).map(one).collect()
}

/// An engine, and what it counts.
pub(super) fn counted(settings: &NativeSettings) -> (NativeEngine, Counts) {
    counted_by(|| engine(settings))
}

/// An engine that is loaded like this, and what it counts.
pub(in crate::engine::native) fn counted_by(load: impl FnOnce() -> NativeEngine) -> (NativeEngine, Counts) {
    let counts = Counts::default();
    let engine = metrics::with_local_recorder(&counts, load);
    (engine, counts)
}

/// Counters, by their names.
#[derive(Default)]
pub(in crate::engine::native) struct Counts(Mutex<HashMap<String, Arc<AtomicU64>>>);

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(self.0.lock().entry(key.name().to_owned()).or_default()))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

pub(super) fn count(counts: &Counts, name: &str) -> u64 {
    counts.0.lock()[&format!("vllm:spec_decode_{name}_total")].load(Ordering::Relaxed)
}

#[tokio::test]
async fn drafts_change_no_bit_in_company_in_pieces_and_under_preemption() {
    change_no_bit(NGRAM, &repetitive(if cfg!(unoptimised) { 24 } else { 1_000 })).await;
}

#[tokio::test]
async fn drafts_that_the_clock_judges_change_no_bit() {
    let with_drafts = |plain| {
        let timed = Speculation::Ngram(NgramLookup { timed: true, ..LOOKUP });
        NativeSettings { drafting: Drafting::Required(timed), ..plain }
    };
    // How many there are is up to the clock.
    no_bit_changes("llama", with_drafts, &repetitive(if cfg!(unoptimised) { 12 } else { 300 })).await;
}

/// Each request alone and without drafts, then all of them in company and with drafts, some of which are right.
pub(super) async fn change_no_bit(speculation: Speculation, requests: &[SequenceRequest]) {
    let with_drafts = |settings| NativeSettings { drafting: Drafting::Required(speculation), ..settings };
    for [drafts, tokens, accepted] in no_bit_changes("llama", with_drafts, requests).await {
        assert!(drafts > 0 && accepted > 0 && accepted < tokens, "{drafts} drafts, {accepted} of {tokens}");
    }
}

/// Likewise with drafts of any kind; gives how many drafts there were, of how many tokens, and how many of these were right.
pub(super) async fn no_bit_changes(
    model: &str,
    with_drafts: impl Fn(NativeSettings) -> NativeSettings,
    requests: &[SequenceRequest],
) -> Vec<[u64; 3]> {
    let mut counted_drafts = Vec::new();
    let plain = engine(&NativeSettings { max_num_seqs: 1, ..settings(model) });
    let mut expected = Vec::new();
    for request in requests {
        assert!(plain.reset_prefix_cache(false).await.unwrap());
        expected.push(collected(plain.generate(request.clone())).await);
    }
    for (max_num_seqs, max_num_batched_tokens, threads, kv) in
        [(1, 512, 1, 2_000), (3, 64, 2, 40), (64, 33, 2, 9), (5, 128, 1, 6), (64, 512, 1, 2_000)]
    {
        let settings = NativeSettings {
            max_num_seqs,
            max_num_batched_tokens,
            threads: Some(threads),
            kv_cache_bytes: blocks(model, kv, Dtype::Bf16),
            ..settings(model)
        };
        let settings = with_drafts(settings);
        let (engine, metrics) = counted(&settings);
        let found = join_all(in_company(&engine, requests).into_iter().map(collected)).await;
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(bits(found), bits(expected), "request {index}, {settings:?}");
            assert_eq!(found.2, expected.2, "request {index}");
        }
        // What was written for drafts is found by nobody.
        let again = join_all(in_company(&engine, requests).into_iter().map(collected)).await;
        assert!(again.iter().zip(&expected).all(|(again, expected)| bits(again) == bits(expected)));
        counted_drafts.push(counts_of(&metrics));
    }
    counted_drafts
}

/// How many drafts there were, of how many tokens, and how many of these were right.
pub(in crate::engine::native) fn counts_of(metrics: &Counts) -> [u64; 3] {
    ["num_drafts", "num_draft_tokens", "num_accepted_tokens"].map(|name| count(metrics, name))
}

#[tokio::test]
async fn routes_are_those_without_drafts() {
    let plain = NativeSettings { return_routed_experts: true, ..settings("qwen3_moe") };
    let (speculating, metrics) = counted(&NativeSettings { drafting: Drafting::Required(NGRAM), ..plain.clone() });
    let plain = engine(&plain);
    for request in repetitive(8) {
        let routing = Routing { shown_from: Some(0), given: None };
        let request = SequenceRequest { routing, ..request };
        let (expected, routes) = routed(plain.generate(request.clone())).await;
        let (found, found_routes) = routed(speculating.generate(request)).await;
        assert_eq!(bits(&found), bits(&expected));
        assert_eq!(found_routes, routes);
    }
    assert!(count(&metrics, "num_accepted_tokens") > 0);
}

#[tokio::test]
async fn text_that_repeats_itself_takes_fewer_steps() {
    let (engine, metrics) = counted(&NativeSettings { drafting: Drafting::Required(NGRAM), ..settings("llama") });
    let sampling = SamplingParams { ignore_eos: true, allowed_token_ids: Some(vec![7]), ..params(200) };
    let answer = collected(engine.generate(request(&[7; 8], sampling))).await;
    assert_eq!(answer.1.len(), 200);
    let (drafts, accepted) = (count(&metrics, "num_drafts"), count(&metrics, "num_accepted_tokens"));
    assert!(drafts < 60 && accepted > 140, "{accepted} tokens in {drafts} drafts");
}

#[test]
fn models_with_recurrent_states_and_gpus_whose_bits_depend_on_company_are_refused() {
    let on_gpu = |deterministic| Device::Cuda {
        number: 0,
        deterministic,
        records_steps: false,
        goes_ahead: false,
        memory_share: None,
    };
    let shape = ModelShape::read(&settings("llama").config).unwrap();
    let planned = |drafting, device| {
        let settings = NativeSettings { drafting, device, ..settings("llama") };
        plan::speculation(&settings, &shape).map_err(|error| error.to_string())
    };
    assert_eq!(planned(Drafting::Required(NGRAM), on_gpu(true)), Ok(Some(NGRAM)));
    assert_eq!(planned(Drafting::WherePossible(NGRAM), on_gpu(true)), Ok(Some(NGRAM)));
    assert_eq!(planned(Drafting::WherePossible(NGRAM), on_gpu(false)), Ok(None));
    assert!(planned(Drafting::Required(NGRAM), on_gpu(false)).unwrap_err().contains("needs --deterministic"));
    let model = Speculation::Model(ModelDrafts { num_speculative_tokens: 5, cost: None });
    assert!(planned(Drafting::Required(model), on_gpu(true)).unwrap_err().contains("computes on the CPU"));
    let golden = Golden::named("families/qwen3_next_plain");
    let hybrid = NativeSettings { drafting: Drafting::Required(NGRAM), ..recurrent::settings_of(&golden) };
    let shape = ModelShape::read(&hybrid.config).unwrap();
    assert!(plan::speculation(&hybrid, &shape).unwrap_err().to_string().contains("recurrent states"));
}
