//! What holds of the sampler as a whole, for any logits and parameters.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

mod sampling_masks;

/// Probabilities at a temperature, by the textbook.
fn naive_probabilities(logits: &[f32], temperature: f64) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |&logit: &f32| ((f64::from(logit) - f64::from(max)) / temperature).exp();
    let total: f64 = logits.iter().map(weight).sum();
    logits.iter().map(|logit| weight(logit) / total).collect()
}

fn sample(params: &SamplingParams, logits: &[f32], steps: usize) -> Vec<SampledToken> {
    let mut sampler = SequenceSampler::new(params.clone().valid(), Arc::new([]));
    let mut logits = logits.to_vec();
    (0..steps).map(|_| sampler.step(&mut logits).unwrap().token).collect()
}

fn ids(params: &SamplingParams, logits: &[f32], steps: usize) -> Vec<TokenId> {
    sample(params, logits, steps).iter().map(|token| token.id).collect()
}

/// The sum of `(observed - expected)^2 / expected`, and the number of tokens that it runs over.
fn chi_square(observed: &[TokenId], probabilities: &[f64]) -> (f64, f64) {
    let mut counts = vec![0.0_f64; probabilities.len()];
    for &id in observed {
        counts[id as usize] += 1.0;
    }
    let draws: f64 = counts.iter().sum();
    let mut statistic = 0.0;
    let mut possible = 0.0;
    for (count, probability) in counts.iter().zip(probabilities) {
        if *probability > 0.0 {
            statistic += (count - draws * probability).powi(2) / (draws * probability);
            possible += 1.0;
        } else {
            assert_eq!(*count, 0.0, "a token of probability zero was drawn");
        }
    }
    (statistic, possible)
}

/// Four standard deviations over the mean of the chi-square distribution, which one of some two thousand seeds exceeds: the
/// seeds are fixed, so that the test says the same each time.
fn assert_drawn_from(params: &SamplingParams, logits: &[f32], probabilities: &[f64], draws: usize) {
    for seed in [1, 2] {
        let params = SamplingParams { seed: Some(seed), ..params.clone() };
        let (statistic, possible) = chi_square(&ids(&params, logits, draws), probabilities);
        let bound = (possible - 1.0) + 4.0 * (2.0 * (possible - 1.0)).sqrt();
        assert!(statistic < bound, "seed {seed}: chi-square {statistic} over {bound}");
    }
}

#[test]
fn draws_follow_the_probabilities() {
    let logits: Vec<f32> = (0..40_u8).map(|i| f32::from(i % 7) * 0.5).collect();
    for temperature in [0.5, 1.0, 1.7] {
        let params = SamplingParams { temperature, ..Default::default() };
        assert_drawn_from(&params, &logits, &naive_probabilities(&logits, temperature), 20_000);
    }
}

#[test]
fn draws_follow_the_probabilities_across_many_blocks() {
    let logits: Vec<f32> =
        (0..3000_u16).map(|i| if i % 100 == 37 { f32::from(i % 7) / 3.0 } else { -1000.0 }).collect();
    assert_drawn_from(&SamplingParams::default(), &logits, &naive_probabilities(&logits, 1.0), 6000);
}

#[test]
fn truncated_draws_follow_what_is_left() {
    let logits = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5];
    let params = SamplingParams { top_k: 3, ..Default::default() };
    let mut masked = logits;
    masked[..3].fill(f32::NEG_INFINITY);
    assert_drawn_from(&params, &logits, &naive_probabilities(&masked, 1.0), 20_000);
}

#[test]
fn seeded_ids_never_change() {
    let logits: Vec<f32> = (0..1000_u16).map(|i| f32::from(i % 10) * 0.3).collect();
    let seeded = |params| ids(&SamplingParams { seed: Some(1234), ..params }, &logits, 6);
    // From a sampler and a ChaCha8 written out in Python.
    assert_eq!(seeded(SamplingParams::default()), [609, 568, 814, 972, 629, 576]);
    assert_eq!(
        seeded(SamplingParams { temperature: 0.7, top_p: 0.9, ..Default::default() }),
        [608, 567, 815, 975, 629, 575]
    );
}

#[test]
fn without_a_seed_no_two_samplers_draw_the_same() {
    let draw = |seed| {
        let params = SamplingParams { seed, ..Default::default() }.valid();
        let mut sampler = SequenceSampler::new(params, Arc::new([]));
        (0..20).map(|_| sampler.step(&mut [0.0; 50]).unwrap().token.id).collect::<Vec<_>>()
    };
    assert_eq!(draw(Some(5)), draw(Some(5)));
    assert_ne!(draw(None), draw(None));
}

fn any_logits() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(prop_oneof![9 => -20.0_f32..20.0, 1 => Just(f32::NEG_INFINITY)], 1..1200)
        .prop_filter("something can be sampled", |logits| logits.iter().any(|logit| logit.is_finite()))
}

fn any_params() -> impl Strategy<Value = SamplingParams> {
    let truncation = (prop_oneof![Just(1.0), 0.05_f64..1.0], prop_oneof![Just(0), 1_usize..60], 0.0_f64..0.3);
    let penalties = (-2.0_f64..2.0, -2.0_f64..2.0, 0.5_f64..2.0);
    (any::<u64>(), 0.1_f64..2.0, truncation, penalties, prop::collection::vec((0_u32..1300, -5.0_f32..5.0), 0..4))
        .prop_map(
            |(
                seed,
                temperature,
                (top_p, top_k, min_p),
                (presence_penalty, frequency_penalty, repetition_penalty),
                logit_bias,
            )| {
                SamplingParams {
                    temperature,
                    top_p,
                    top_k,
                    min_p,
                    presence_penalty,
                    frequency_penalty,
                    repetition_penalty,
                    logit_bias,
                    seed: Some(seed),
                    ..Default::default()
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_seed_gives_the_same_ids_whatever_log_probs_are_asked_for(logits in any_logits(), params in any_params()) {
        let expected = ids(&params, &logits, 8);
        for logprobs in [Some(Logprobs::Top(0)), Some(Logprobs::Top(7)), Some(Logprobs::All), Some(Logprobs::Ids(vec![0]))] {
            for logprobs_mode in [LogprobsMode::Raw, LogprobsMode::Processed] {
                let params = SamplingParams { logprobs: logprobs.clone(), logprobs_mode, ..params.clone() };
                prop_assert_eq!(ids(&params, &logits, 8), expected.clone());
            }
        }
    }

    #[test]
    fn processed_probabilities_sum_to_one_and_the_token_is_one_of_them(logits in any_logits(), params in any_params()) {
        let params = SamplingParams {
            logprobs: Some(Logprobs::All), logprobs_mode: LogprobsMode::Processed, ..params
        };
        for token in sample(&params, &logits, 4) {
            let sum: f64 = token.top_logprobs.iter().map(|top| f64::from(top.logprob).exp()).sum();
            prop_assert!((sum - 1.0).abs() < 1e-5, "{}", sum);
            prop_assert!(token.logprob > -9999.0);
            let top = token.top_logprobs[token.rank as usize - 1];
            prop_assert_eq!((top.id, top.logprob), (token.id, token.logprob));
        }
    }

    #[test]
    fn raw_log_probs_are_those_of_scoring(logits in any_logits(), params in any_params(), top in 0_usize..9) {
        let params = SamplingParams { logprobs: Some(Logprobs::Top(top)), ..params };
        for token in sample(&params, &logits, 4) {
            prop_assert_eq!(&token, &score_token(&logits, token.id, top).unwrap());
        }
    }

    #[test]
    fn greedy_is_the_first_of_the_greatest(logits in any_logits()) {
        let params = SamplingParams { temperature: 0.0, ..Default::default() };
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let first = logits.iter().position(|&logit| logit == max).unwrap();
        prop_assert_eq!(ids(&params, &logits, 1)[0] as usize, first);
    }

    #[test]
    fn allowing_every_token_changes_nothing(logits in any_logits(), params in any_params()) {
        let every = (0..1200).collect();
        let allowed = SamplingParams { allowed_token_ids: Some(every), ..params.clone() };
        prop_assert_eq!(sample(&params, &logits, 4), sample(&allowed, &logits, 4));
    }

    #[test]
    fn no_logits_make_the_sampler_panic(
        mut logits in prop::collection::vec(
            prop_oneof![any::<f32>(), Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY), Just(f32::MAX), Just(0.0)],
            0..200,
        ),
        params in any_params(),
    ) {
        let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>();
        let before = bits(&logits);
        let mut sampler = SequenceSampler::new(params.valid(), Arc::new([0, 1, 5000]));
        for _ in 0..3 {
            match sampler.step(&mut logits) {
                Ok(step) => prop_assert!(logits[step.token.id as usize].is_finite() && step.token.logprob.is_finite()),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
        prop_assert_eq!(before, bits(&logits));
    }
}
