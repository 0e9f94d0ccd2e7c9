//! The engine as its users see it, over the tiny models of `tests/golden/native`.

mod activations;
mod adapters;
mod allocated;
mod changed_files;
mod draft_model;
mod forced;
mod guided;
mod image_adapters;
mod images;
mod recurrent;
mod routes;
mod soak;
pub(super) mod speculation;
mod suffix;
mod tied;
mod unread;
pub(super) mod weights;

use std::path::Path;

use futures::future::join_all;
use proptest::test_runner::{RngAlgorithm, TestRng};
use rand_chacha::rand_core::RngCore;

use super::*;
use crate::{
    TokenId,
    engine::{
        Candidates, EngineOutput, FinishReason, PromptOutput, Routing, SamplingParams, WeightDtype, WeightTensor,
    },
    sampling::{Logprobs, SampledToken},
};
use weights::replace;

/// Unoptimised kernels take their time; the release build runs the whole.
const REQUESTS: usize = if cfg!(unoptimised) { 8 } else { 500 };

pub(super) fn settings(model: &str) -> NativeSettings {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/native").join(model);
    let config = serde_json::from_slice(&std::fs::read(directory.join("config.json")).unwrap()).unwrap();
    NativeSettings {
        source: WeightsSource::Directory(directory),
        config,
        dtype: Dtype::Bf16,
        f32_activations: false,
        max_model_len: 256,
        max_num_seqs: 64,
        max_num_batched_tokens: 512,
        max_waiting: 1_000,
        return_routed_experts: false,
        drafting: Drafting::Off,
        draft_model: None,
        adapters: None,
        image_patches: Some(usize::MAX),
        cache_events: None,
        device: Device::Cpu,
        kv_cache_bytes: 64 << 20,
        threads: Some(1),
        kernels: None,
        unusable_kernels: Vec::new(),
    }
}

pub(super) fn engine(settings: &NativeSettings) -> NativeEngine {
    NativeEngine::load(settings, &mut |_, _| ()).unwrap()
}

/// A number of blocks, as bytes.
pub(super) fn blocks(model: &str, blocks: u64, dtype: Dtype) -> u64 {
    let config = settings(model).config;
    let size = |key: &str| config[key].as_u64().unwrap();
    let bytes = if dtype == Dtype::Bf16 { 2 } else { 4 };
    let head_dim = config.get("head_dim").and_then(serde_json::Value::as_u64).unwrap_or(16);
    let padded = if dtype == Dtype::Bf16 { head_dim.next_multiple_of(32) } else { head_dim };
    let per_token = size("num_key_value_heads") * (padded + head_dim.next_multiple_of(16)) * bytes;
    blocks * 32 * per_token * size("num_hidden_layers")
}

pub(super) fn request(prompt: &[TokenId], sampling: SamplingParams) -> SequenceRequest {
    SequenceRequest {
        prompt_token_ids: prompt.into(),
        sampling: sampling.valid(),
        prompt_logprobs: None,
        candidates: None,
        cache_salt: None,
        adapter: None,
        routing: Routing::default(),
        images: Arc::default(),
        timed: false,
    }
}

pub(super) fn params(max_tokens: usize) -> SamplingParams {
    SamplingParams { max_tokens, seed: Some(7), logprobs: Some(Logprobs::Top(3)), ..SamplingParams::default() }
}

/// The prompt's log-probs, the sampled tokens, and the end.
pub(super) type Answer = (Vec<SampledToken>, Vec<SampledToken>, FinishReason);

pub(super) async fn collected(stream: TokenStream) -> Answer {
    let (mut prompt, mut tokens, mut end) = (Vec::new(), Vec::new(), None);
    for output in stream.collect::<Vec<_>>().await {
        match output.unwrap() {
            EngineOutput::Prompt(output) => prompt = output.logprobs,
            EngineOutput::Weights(_) | EngineOutput::Routes(_) | EngineOutput::Times(_) => {}
            EngineOutput::Token(token) => tokens.push(token),
            EngineOutput::Finished(reason) => assert_eq!(end.replace(reason), None),
        }
    }
    (prompt, tokens, end.expect("a stream says how it ended"))
}

/// A token, its log-prob, and the alternatives.
pub(super) type Bits = (TokenId, u32, Vec<(TokenId, u32)>);

/// Bits rather than numbers: two zeros of different signs are different.
pub(super) fn bits(answer: &Answer) -> Vec<Bits> {
    let of = |token: &SampledToken| {
        let top = token.top_logprobs.iter().map(|top| (top.id, top.logprob.to_bits())).collect();
        (token.id, token.logprob.to_bits(), top)
    };
    answer.0.iter().chain(&answer.1).map(of).collect()
}

pub(super) struct Random(TestRng);

impl Random {
    pub(super) fn seeded(seed: u32) -> Self {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&seed.to_le_bytes());
        Self(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }

    pub(super) fn below(&mut self, bound: u32) -> u32 {
        self.0.next_u32() % bound
    }

    /// Prompts of three families that begin alike, and of their own.
    pub(super) fn request(&mut self) -> SequenceRequest {
        let (family, length) = (self.below(4), self.below(120) as usize + 1);
        let prompt: Vec<TokenId> = (0..)
            .take(length)
            .map(|place| if family == 3 { self.below(96) } else { (place * 7 + family * 13) % 96 })
            .collect();
        let sampling = SamplingParams {
            temperature: [0.0, 0.7, 1.0][self.below(3) as usize],
            top_p: [1.0, 0.9][self.below(2) as usize],
            top_k: [0, 20][self.below(2) as usize],
            seed: Some(u64::from(self.below(1_000))),
            ..params(self.below(24) as usize + 1)
        };
        SequenceRequest { prompt_logprobs: (self.below(10) == 0).then_some(2), ..request(&prompt, sampling) }
    }
}

/// Starts all of `requests`: some are of clients, some of sessions, some of nobody, and some are several sequences.
pub(super) fn in_company(engine: &NativeEngine, requests: &[SequenceRequest]) -> Vec<TokenStream> {
    let parties = [Some(Party::Client("a".into())), None, Some(Party::Session("a".into())), None];
    let mut streams = Vec::new();
    for (index, group) in requests.chunks(3).enumerate() {
        let mut reservation = engine.reserve(parties[index % parties.len()].clone(), group.len()).unwrap();
        for request in group {
            streams.push(engine.start(reservation.take().unwrap(), request.clone()));
        }
    }
    streams
}

/// Bounds of an engine: sequences, tokens of a step, threads, and bytes of its cache.
type Company = (usize, usize, usize, u64);

/// Each request alone, then all of them in company under other bounds.
async fn compare(model: &str, dtype: Dtype, kernels: KernelSet, count: usize) {
    let base = NativeSettings { dtype, kernels: Some(kernels.name()), ..settings(model) };
    let companies = [(64, 512, 1, 2_000), (8, 16, 2, 2_000), (3, 64, 3, 40), (64, 33, 2, 9), (5, 128, 1, 5)];
    let companies = companies.map(|(seqs, tokens, threads, kv)| (seqs, tokens, threads, blocks(model, kv, dtype)));
    compare_in(&companies, &base, &requests(count), engine).await;
}

/// Requests of all kinds.
fn requests(count: usize) -> Vec<SequenceRequest> {
    let mut random = Random::seeded(0);
    (0..count).map(|_| random.request()).collect()
}

/// Likewise, with engines of any kind.
async fn compare_in(
    companies: &[Company],
    base: &NativeSettings,
    requests: &[SequenceRequest],
    engine: impl Fn(&NativeSettings) -> NativeEngine,
) {
    let alone = NativeSettings { max_num_seqs: 1, max_num_batched_tokens: 512, ..base.clone() };
    let alone = engine(&alone);
    let mut expected = Vec::new();
    for request in requests {
        assert!(alone.reset_prefix_cache(false).await.unwrap());
        expected.push(collected(alone.generate(request.clone())).await);
    }
    for (max_num_seqs, max_num_batched_tokens, threads, kv_cache_bytes) in companies.iter().copied() {
        let settings = NativeSettings {
            max_num_seqs,
            max_num_batched_tokens,
            threads: Some(threads),
            kv_cache_bytes,
            ..base.clone()
        };
        let engine = engine(&settings);
        let company = in_company(&engine, requests);
        let company = join_all(company.into_iter().map(collected)).await;
        for (index, (found, expected)) in company.iter().zip(&expected).enumerate() {
            assert_eq!(bits(found), bits(expected), "request {index}, {settings:?}");
            assert_eq!(found.2, expected.2);
        }
    }
}

#[tokio::test]
async fn company_cache_pieces_threads_and_preemption_change_no_bit() {
    for kernels in KernelSet::tested() {
        compare("llama", Dtype::Bf16, kernels, REQUESTS).await;
        if !cfg!(unoptimised) {
            compare("mistral", Dtype::Bf16, kernels, REQUESTS).await;
            compare("qwen3_moe", Dtype::F32, kernels, REQUESTS).await;
        }
    }
}

#[tokio::test]
async fn prompt_log_probs_are_those_of_the_generation_itself() {
    let engine = engine(&settings("qwen3"));
    let (_, tokens, _) = collected(engine.generate(request(&[5, 6, 7], params(40)))).await;
    let whole: Vec<TokenId> = [5, 6, 7].into_iter().chain(tokens.iter().map(|token| token.id)).collect();
    let asked = SequenceRequest { prompt_logprobs: Some(3), ..request(&whole, params(1)) };
    let (scores, ..) = collected(engine.generate(asked)).await;
    assert_eq!(scores.len(), 42);
    assert_eq!(scores[2..], tokens);
}

/// What an engine says of a prompt.
async fn prompt_output(engine: &NativeEngine, request: SequenceRequest) -> PromptOutput {
    let mut outputs = engine.generate(request);
    match outputs.next().await {
        Some(Ok(EngineOutput::Prompt(output))) => output,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn candidates_have_the_log_probs_that_they_would_have_in_the_prompt() {
    let engine = engine(&NativeSettings { max_num_batched_tokens: 24, ..settings("qwen3") });
    let prompt: Vec<TokenId> = (0..70).map(|id| id * 7 % 96).collect();
    let whole = SequenceRequest { prompt_logprobs: Some(1_000), ..request(&prompt, params(1)) };
    let whole = prompt_output(&engine, whole).await;
    let logprob = |position: usize, id: TokenId| {
        whole.logprobs[position].top_logprobs.iter().find(|top| top.id == id).unwrap().logprob.to_bits()
    };
    let asked = |candidates: Candidates| SequenceRequest {
        candidates: Some(Arc::new(candidates)),
        ..request(&prompt, params(1))
    };
    // From the first position on, from the middle of a block, and only the last one.
    for first in [0, 37, 68] {
        let rows = (first..69).map(|position| [Some(position), None, Some(95)].map(|id| id.map(|id: u32| id % 96)));
        let own = asked(Candidates::of_rows(first as usize, 4, rows));
        let same = asked(Candidates::same(first as usize, vec![3, 90]));
        // Again, with the prompt in the cache as far as it is not scored.
        for round in 0..2 {
            let output = prompt_output(&engine, own.clone()).await;
            let expected = (first..69).flat_map(|position| {
                let score = |id| logprob(position as usize, id);
                let nothing = f32::NEG_INFINITY.to_bits();
                [score(position % 96), nothing, score(95), nothing]
            });
            let bits: Vec<u32> = output.candidates.iter().map(|score| score.to_bits()).collect();
            assert_eq!(bits, expected.collect::<Vec<_>>(), "from {first}, round {round}");
            let before = first as usize;
            assert!(
                (before / 32 * 32..=before).contains(&output.cached_tokens),
                "{} from {first}",
                output.cached_tokens
            );
            assert!(output.logprobs.is_empty());
            let output = prompt_output(&engine, same.clone()).await;
            let expected = (first..69).flat_map(|position| [3, 90].map(|id| logprob(position as usize, id)));
            assert!(output.candidates.iter().map(|score| score.to_bits()).eq(expected), "from {first}");
        }
    }
    // Both at once: the prompt's own tokens from the beginning, candidates from where they are asked for.
    let both = SequenceRequest { prompt_logprobs: Some(1_000), ..asked(Candidates::same(60, vec![3])) };
    let output = prompt_output(&engine, both).await;
    assert_eq!((output.logprobs == whole.logprobs, output.candidates.len()), (true, 9));
}

#[tokio::test]
async fn a_prompt_is_scored_with_the_weights_that_sample_its_first_token() {
    let engine = engine(&NativeSettings { max_num_batched_tokens: 24, ..settings("llama") });
    let prompt: Vec<TokenId> = (0..90).collect();
    let asked = || SequenceRequest {
        prompt_logprobs: Some(0),
        candidates: Some(Arc::new(Candidates::same(0, vec![3, 90]))),
        ..request(&prompt, params(1))
    };
    let old = prompt_output(&engine, asked()).await;
    // Scores of some pieces are there already, or all of them, when the weights change.
    let mut under_way: Vec<_> = (0..4).map(|_| engine.generate(asked())).collect();
    replace(&engine, weights::norm(0.5)).await.unwrap();
    let new = prompt_output(&engine, asked()).await;
    assert_ne!(old, new);
    for outputs in &mut under_way {
        let (mut scores, mut version) = (None, None);
        while let Some(output) = outputs.next().await {
            match output.unwrap() {
                EngineOutput::Prompt(output) => scores = Some(output),
                EngineOutput::Weights(weights) => version = version.or(Some(weights.version.number)),
                _ => {}
            }
        }
        let expected = if version == Some(0) { &old } else { &new };
        assert_eq!(scores.as_ref().map(|scores| &scores.candidates), Some(&expected.candidates));
        assert_eq!(scores.map(|scores| scores.logprobs), Some(expected.logprobs.clone()));
    }
}

/// Other embeddings for a model of 96 tokens, those of token 95 not numbers.
fn embeddings_without_the_last(engine: &NativeEngine) -> WeightTensor {
    let tensors = engine.tensors();
    let TensorInfo { name, shape, .. } = tensors.iter().find(|tensor| tensor.name.contains("embed")).unwrap();
    let columns = u16::try_from(shape[1]).unwrap();
    let number = |place| if place < 95 * columns { f32::from(place).sin() } else { f32::NAN };
    WeightTensor {
        name: name.clone(),
        dtype: WeightDtype::F32,
        shape: shape.clone(),
        bytes: (0..96 * columns).map(number).flat_map(f32::to_le_bytes).collect(),
    }
}

#[tokio::test]
async fn a_sequence_with_numbers_that_are_not_finite_spoils_no_other() {
    for dtype in [Dtype::Bf16, Dtype::F32] {
        let engine = engine(&NativeSettings { dtype, max_num_batched_tokens: 24, ..settings("llama") });
        break_some(&engine).await;
    }
}

/// Has sequences break beside others and before others, of which none may notice.
async fn break_some(engine: &NativeEngine) {
    replace(engine, vec![embeddings_without_the_last(engine)]).await.unwrap();
    let healthy = || request(&(0..50).collect::<Vec<_>>(), params(5));
    let expected = bits(&collected(engine.generate(healthy())).await);
    // After whole blocks that are alike, and within a block whose beginning is copied while it is computed.
    for place in [40, 20] {
        assert!(engine.reset_prefix_cache(false).await.unwrap());
        let mut prompt: Vec<TokenId> = (0..70).collect();
        prompt[place] = 95;
        let broken = engine.generate(request(&prompt, params(5)));
        let company = engine.generate(healthy());
        let (broken, company) = futures::join!(broken.collect::<Vec<_>>(), collected(company));
        assert!(matches!(broken.last(), Some(Err(EngineError::NonFiniteLogits))), "{broken:?}");
        assert_eq!(bits(&company), expected);
        assert_eq!(bits(&collected(engine.generate(healthy())).await), expected);
    }
    assert!(engine.reset_prefix_cache(false).await.unwrap(), "nobody holds anything");
}

#[tokio::test]
async fn a_stream_whose_sender_is_gone_ends_with_an_error() {
    let status = Arc::new(Status::new(1));
    let ticket = status.reserve(None, 1).unwrap().take().unwrap();
    let (sender, receiver) = Backlog::new(BacklogBounds::default()).channel(1, ticket.arrived, || ());
    let mut outputs = Outputs { ticket, receiver, commands: channel().0, status, ended: false };
    drop(sender);
    assert!(matches!(outputs.next().await, Some(Err(EngineError::Failed(_)))));
    assert_eq!(outputs.next().await, None);
}

#[tokio::test]
async fn a_dropped_stream_frees_its_blocks() {
    let engine = engine(&settings("llama"));
    let mut streams: Vec<TokenStream> = (0..4)
        .map(|id| engine.generate(request(&[id; 50], SamplingParams { ignore_eos: true, ..params(200) })))
        .collect();
    for stream in &mut streams {
        assert!(matches!(stream.next().await, Some(Ok(EngineOutput::Prompt(_)))));
        assert!(matches!(stream.next().await, Some(Ok(EngineOutput::Weights(_)))));
        assert!(matches!(stream.next().await, Some(Ok(EngineOutput::Token(_)))));
    }
    drop(streams);
    // Commands are obeyed in order: the reset is answered after the aborts.
    assert!(engine.reset_prefix_cache(false).await.unwrap());
    assert_eq!(engine.load(), EngineLoad::default());
}

#[tokio::test]
async fn what_can_never_fit_is_refused_at_once_and_a_full_queue_too() {
    let bounds = NativeSettings {
        kv_cache_bytes: blocks("llama", 2, Dtype::Bf16),
        max_num_seqs: 1,
        max_waiting: 1,
        ..settings("llama")
    };
    let engine = engine(&bounds);
    let refused = engine.generate(request(&[1; 60], params(6))).next().await;
    assert!(
        matches!(&refused, Some(Err(EngineError::Unsupported(reason))) if reason.contains("--kv-cache-memory")),
        "{refused:?}"
    );
    let fitting = engine.generate(request(&[1; 60], params(5)));
    let waiting = engine.generate(request(&[2; 60], params(5)));
    let one_too_many = engine.generate(request(&[3; 60], params(5))).next().await;
    assert!(matches!(one_too_many, Some(Err(EngineError::Overloaded))), "{one_too_many:?}");
    assert_eq!(collected(fitting).await.1.len(), 5);
    assert_eq!(collected(waiting).await.1.len(), 5);
    assert_eq!(collected(engine.generate(request(&[3; 60], params(5)))).await.1.len(), 5);
}

#[tokio::test]
async fn shutdown_aborts_what_runs_and_what_waits_and_refuses_the_rest() {
    let engine = engine(&NativeSettings { max_num_seqs: 1, ..settings("llama") });
    let gate = engine.step_gate();
    gate.shut().await.unwrap();
    let streams = [1, 2].map(|id| engine.generate(request(&[id; 50], params(2))));
    gate.step().await.unwrap();
    engine.shutdown(Duration::from_mins(1)).await;
    for (stream, sampled) in streams.into_iter().zip([1, 0]) {
        let (_, tokens, end) = collected(stream).await;
        assert_eq!((tokens.len(), end), (sampled, FinishReason::Abort));
    }
    let refused = engine.generate(request(&[1], params(1))).next().await;
    assert_eq!(refused, Some(Err(EngineError::ShutDown)));
    assert_eq!(engine.health(), Err(EngineError::ShutDown));
}

#[test]
fn what_cannot_be_loaded_says_why() {
    let refusal = |settings: NativeSettings| NativeEngine::load(&settings, &mut |_, _| ()).err().unwrap().to_string();
    let mut other = settings("llama");
    other.config["architectures"] = serde_json::json!(["BertForMaskedLM"]);
    assert_eq!(refusal(other), "the native engine does not know the architecture BertForMaskedLM");
    let small = NativeSettings { kv_cache_bytes: 100, ..settings("llama") };
    assert!(refusal(small).starts_with("a KV cache of 100 bytes is too small"));
    let threads = NativeSettings { threads: Some(usize::MAX), ..settings("llama") };
    assert_eq!(refusal(threads), "cannot start a thread: 18446744073709551615 threads are more than 65536");
    let elsewhere = NativeSettings { source: WeightsSource::Directory("/nowhere".into()), ..settings("llama") };
    assert!(refusal(elsewhere).starts_with("/nowhere has no weights: "));
}

#[test]
fn a_cache_that_is_too_small_is_refused_before_the_weights_are_read() {
    let small = NativeSettings { kv_cache_bytes: 100, ..settings("llama") };
    let mut read = 0;
    assert!(NativeEngine::load(&small, &mut |done, _| read = read.max(done + 1)).is_err());
    assert_eq!(read, 0);
}

#[tokio::test]
async fn as_much_memory_as_can_be_asked_for_is_a_cache_or_a_clear_refusal() {
    let endless = NativeSettings { kv_cache_bytes: u64::MAX, ..settings("llama") };
    match NativeEngine::load(&endless, &mut |_, _| ()) {
        Ok(engine) => assert_eq!(collected(engine.generate(request(&[1, 2], params(3)))).await.1.len(), 3),
        Err(error) => {
            let bytes = u64::MAX;
            assert_eq!(
                error.to_string(),
                format!("a KV cache of {bytes} bytes is too large: the system has no room for it")
            );
        }
    }
}

#[tokio::test]
async fn lengths_that_no_number_holds_are_refused() {
    let engine = engine(&NativeSettings { max_model_len: usize::MAX, ..settings("llama") });
    let refused = engine.generate(request(&[1, 2], params(usize::MAX))).next().await;
    assert!(matches!(refused, Some(Err(EngineError::Unsupported(_)))), "{refused:?}");
}
