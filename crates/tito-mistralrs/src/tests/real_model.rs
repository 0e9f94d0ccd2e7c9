//! The tap inside the real engine: what it reports, against another computation over the logits that it saw.

use std::sync::Arc;

use candle_core::Tensor;
use futures::StreamExt;
use mistralrs_core::CustomLogitsProcessor;
use parking_lot::Mutex;

use super::super::{
    Alphabet, Dtype, LoadSpec, WeightsSource, load,
    sequence::{drain, submit},
    tap::Tap,
};
use crate::{
    TokenId,
    engine::{EngineOutput, Routing, SampledToken, SamplingParams, SequenceRequest, backlog},
    sampling::Logprobs,
};

/// `SmolLM2`'s.
const VOCAB_SIZE: usize = 49_152;
/// "Hi" in `SmolLM2`'s template.
const PROMPT: [TokenId; 8] = [1, 4093, 198, 26843, 2, 198, 1, 520];

/// Notes the logits on their way to the tap.
struct Recorder {
    tap: Tap,
    seen: Mutex<Vec<Vec<f32>>>,
}

impl CustomLogitsProcessor for Recorder {
    fn apply(&self, logits: &Tensor, context: &[TokenId]) -> candle_core::Result<Tensor> {
        self.seen.lock().push(logits.to_vec1()?);
        self.tap.apply(logits, context)
    }
}

/// The model that `scripts/test` makes.
#[expect(clippy::disallowed_methods, reason = "tests are told by the environment where the model is")]
fn model() -> Option<std::path::PathBuf> {
    let path = std::env::var("TITO_TEST_MODEL").ok();
    let required = std::env::var("TITO_REQUIRE_MODEL").is_ok_and(|value| value == "1");
    assert!(path.is_some() || !required, "TITO_TEST_MODEL is not set");
    if path.is_none() {
        eprintln!("SKIPPED: TITO_TEST_MODEL is not set; scripts/test makes the model and sets it");
    }
    path.map(Into::into)
}

/// In 32 bits, the way a textbook has it, with compensated summation: 49,152 terms would lose the digits compared.
fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (mut sum, mut lost) = (0.0_f32, 0.0_f32);
    for logit in logits {
        let term = (logit - greatest).exp() - lost;
        let next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    logits.iter().map(|logit| logit - greatest - sum.ln()).collect()
}

fn assert_agrees(token: &SampledToken, expected: &[f32]) {
    let close = |id: TokenId, logprob: f32| {
        let expected = expected[id as usize];
        assert!((logprob - expected).abs() < 1e-5, "token {id}: {logprob} instead of {expected}");
    };
    close(token.id, token.logprob);
    assert_eq!(token.top_logprobs.len(), expected.len());
    token.top_logprobs.iter().for_each(|top| close(top.id, top.logprob));
}

#[tokio::test(flavor = "multi_thread")]
async fn log_probs_agree_with_an_independent_softmax_over_the_logits_that_the_tap_saw() {
    let Some(directory) = model() else { return };
    let alphabet = Alphabet::new(VOCAB_SIZE).unwrap();
    let spec = LoadSpec {
        source: WeightsSource::Directory(directory),
        gpu: None,
        dtype: Dtype::F32,
        max_model_len: 512,
        max_waiting: 8,
        vocab_size: VOCAB_SIZE,
        unproven: None,
    };
    let loaded = load::load(spec, alphabet).await.unwrap();
    let (temperature, seed, max_tokens) = (1.5, Some(3), 8);
    let sampling =
        SamplingParams { temperature, seed, max_tokens, logprobs: Some(Logprobs::All), ..SamplingParams::default() };
    let request = SequenceRequest {
        prompt_token_ids: Arc::new(PROMPT),
        sampling: sampling.valid(),
        prompt_logprobs: None,
        candidates: None,
        cache_salt: None,
        adapter: None,
        routing: Routing::default(),
        images: Arc::default(),
        timed: false,
    };
    let backlog = backlog::Backlog::new(backlog::Bounds { sequence: 1 << 30, all: 1 << 30, spared: 0 });
    let (outputs, mut tokens) = backlog.channel(PROMPT.len(), std::time::Instant::now(), || ());
    let recorder = Arc::new(Recorder { tap: Tap::new(request, alphabet, outputs), seen: Mutex::default() });
    let responses = submit(&loaded.requests, PROMPT.to_vec(), max_tokens, recorder.clone()).await.unwrap();
    assert_eq!(drain(responses).await, None);
    let positions = std::mem::take(&mut *recorder.seen.lock());
    for logits in &positions[..max_tokens] {
        let Some(Ok(EngineOutput::Token(token))) = tokens.next().await else { panic!("a token is missing") };
        assert_agrees(&token, &log_softmax(logits));
    }
}
