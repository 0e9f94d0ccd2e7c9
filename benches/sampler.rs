//! One token from its logits: what a sequence costs on top of the model, per parameter set and vocabulary.

use std::{hint::black_box, sync::Arc};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};
use tito::internals::sampling::{Logprobs, SamplingParams, SequenceSampler, score_token};

/// SmolLM2's and Qwen2.5's.
const VOCABULARIES: [usize; 2] = [49_152, 151_936];

/// Uniform in [0, 1).
fn uniform(rng: &mut ChaCha8Rng) -> f32 {
    f32::from(u16::try_from(rng.next_u32() >> 16).expect("16 bits")) / 65_536.0
}

/// About normal, of variance 1.
fn noise(rng: &mut ChaCha8Rng) -> f32 {
    (0..12).map(|_| uniform(rng)).sum::<f32>() - 6.0
}

/// The shape of a language model's logits: a broad bulk and a few dozen tokens that stand out of it.
fn peaked(vocab_size: usize) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut logits: Vec<f32> = (0..vocab_size).map(|_| 2.0 * noise(&mut rng)).collect();
    let mut height = 22.0;
    while height > 9.0 {
        let place = rng.next_u32() as usize % vocab_size;
        logits[place] = height;
        height -= 0.3;
    }
    logits
}

/// The worst case of truncation: no token stands out, so that half the vocabulary belongs to the nucleus.
fn flat(vocab_size: usize) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    (0..vocab_size).map(|_| noise(&mut rng)).collect()
}

fn parameter_sets() -> [(&'static str, SamplingParams); 7] {
    let base = SamplingParams { seed: Some(1), max_tokens: usize::MAX, ..SamplingParams::default() };
    [
        ("greedy", SamplingParams { temperature: 0.0, ..base.clone() }),
        ("temperature 1", base.clone()),
        ("temperature 0.7", SamplingParams { temperature: 0.7, ..base.clone() }),
        ("top_p 0.95", SamplingParams { top_p: 0.95, ..base.clone() }),
        ("top_k 50", SamplingParams { top_k: 50, ..base.clone() }),
        (
            "top_p 0.95 and penalties",
            SamplingParams {
                top_p: 0.95,
                presence_penalty: 0.5,
                frequency_penalty: 0.1,
                repetition_penalty: 1.1,
                ..base.clone()
            },
        ),
        ("top 20 log-probs", SamplingParams { logprobs: Some(Logprobs::Top(20)), ..base }),
    ]
}

/// Penalties look at what was sampled, so a sequence that never ended would measure something else.
const SEQUENCE: usize = 256;

/// Samples sequences from the same logits at every position.
fn bench_case(criterion: &mut Criterion, name: &str, params: &SamplingParams, logits: &[f32]) {
    let prompt: Arc<[u32]> = (0..1024).map(|id| id * 37).collect();
    let params = Arc::new(params.clone().validated(logits.len()).expect("valid parameters"));
    let sampler = || SequenceSampler::new(Arc::clone(&params), Arc::clone(&prompt));
    let (mut sequence, mut length) = (sampler(), 0);
    let mut scratch = logits.to_vec();
    let wanted = params.logprobs.as_ref().map_or(0, |_| 20);
    let best = score_token(logits, 0, 1).expect("finite logits").top_logprobs[0];

    let mut group = criterion.benchmark_group("sampler");
    group.throughput(Throughput::Elements(1));
    group.bench_function(BenchmarkId::new(name, logits.len()), |bencher| {
        bencher.iter(|| {
            if length == SEQUENCE {
                (sequence, length) = (sampler(), 0);
            }
            length += 1;
            let step = sequence.step(black_box(&mut scratch)).expect("finite logits");
            assert!(step.finish.is_none() && step.token.top_logprobs.len() == wanted);
            assert!(step.token.logprob <= best.logprob && (params.temperature > 0.0 || step.token.id == best.id));
            step
        });
    });
    let token = sequence.step(&mut scratch).expect("finite logits").token;
    assert_eq!(token, score_token(logits, token.id, wanted).expect("finite logits"));
    group.finish();
}

fn sampler(criterion: &mut Criterion) {
    for vocab_size in VOCABULARIES {
        let logits = peaked(vocab_size);
        for (name, params) in parameter_sets() {
            bench_case(criterion, name, &params, &logits);
        }
        let params = SamplingParams { top_p: 0.95, seed: Some(1), max_tokens: usize::MAX, ..SamplingParams::default() };
        bench_case(criterion, "top_p 0.95 of flat logits", &params, &flat(vocab_size));
    }
}

criterion_group!(benches, sampler);
criterion_main!(benches);
