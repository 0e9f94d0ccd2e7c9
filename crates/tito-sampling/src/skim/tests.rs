//! Positions by way of summaries, beside all logits.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::SamplingParams;

fn sampler(params: &SamplingParams) -> SequenceSampler {
    SequenceSampler::new(params.clone().valid(), Arc::new([]))
}

/// How many logits are at least that of a token; what the blocks tell of it is no other number.
fn counted(logits: &[f32], skimmed: &Skimmed) -> u32 {
    let count = u32::try_from(logits.iter().filter(|logit| **logit >= skimmed.logit()).count()).unwrap();
    assert_eq!(skimmed.at_least().unwrap_or(count), count);
    count
}

/// A position by way of a summary, where that may be.
fn skimmed(sampler: &mut SequenceSampler, logits: &[f32]) -> Option<Step> {
    let (sampler, skimmed) = picked(sampler, logits)?;
    let at_least = counted(logits, &skimmed);
    Some(sampler.conclude(skimmed, at_least))
}

/// The same, before it is concluded.
fn picked<'a>(sampler: &'a mut SequenceSampler, logits: &[f32]) -> Option<(&'a mut SequenceSampler, Skimmed)> {
    let summary = OwnedSummary::new(logits, sampler.skims()?);
    let skim = sampler.skim(summary.get())?;
    let read: Vec<f32> =
        skim.blocks().iter().flat_map(|block| logits.chunks(BLOCK).nth(*block as usize).unwrap()).copied().collect();
    let skimmed = sampler.pick(&skim, &read)?;
    Some((sampler, skimmed))
}

proptest! {
    #[test]
    fn a_summary_gives_what_all_logits_give(
        // Few different numbers, so that some are equal.
        logits in prop::collection::vec((-40_i8..40).prop_map(|tenths| f32::from(tenths) / 8.0), 1..1500),
        temperature in prop::sample::select(vec![0.0, 0.3, 1.0, 1.7]),
        alternatives in prop::option::of(0..21_usize),
    ) {
        let logprobs = alternatives.map(Logprobs::Top);
        let params = SamplingParams { temperature, logprobs, seed: Some(3), max_tokens: 3, ..Default::default() };
        let (mut whole, mut parts) = (sampler(&params), sampler(&params));
        for _ in 0..3 {
            prop_assert_eq!(skimmed(&mut parts, &logits), Some(whole.step(&mut logits.clone()).unwrap()));
        }
    }
}

proptest! {
    #[test]
    fn a_summary_gives_what_all_logits_give_where_draws_are_truncated(
        seed in 0_u64..1_000_000,
        len in 1..40_000_usize,
        // From a few tokens that have nearly all weight to many that have the same.
        spread in prop::sample::select(vec![0.0_f32, 0.3, 2.0, 6.0]),
        temperature in prop::sample::select(vec![0.3, 1.0, 1.7]),
        top_k in prop::sample::select(vec![0_usize, 0, 1, 5, 20, 64, 65]),
        top_p in prop::sample::select(vec![1.0, 1.0, 0.2, 0.9, 0.95, 0.999]),
        min_p in prop::sample::select(vec![0.0, 0.0, 0.05, 0.9]),
        sampling_mask in prop::option::of(Just(300_usize)),
        alternatives in prop::option::of(0..4_usize),
    ) {
        let mut state = seed;
        let logits: Vec<f32> = (0..len).map(|_| spread * normal(&mut state)).collect();
        let logprobs = alternatives.map(Logprobs::Top);
        let base = SamplingParams { temperature, top_p, top_k, min_p, logprobs, sampling_mask, ..Default::default() };
        let params = SamplingParams { seed: Some(3), max_tokens: 3, ..base };
        let (mut whole, mut parts) = (sampler(&params), sampler(&params));
        for _ in 0..3 {
            let expected = whole.step(&mut logits.clone());
            // Where a summary does not do, a device gives all logits.
            let found = skimmed(&mut parts, &logits).map_or_else(|| parts.step(&mut logits.clone()), Ok);
            prop_assert_eq!(found, expected);
        }
    }
}

/// The sum of four numbers of a coarse grid, as some logits are to be equal.
fn normal(state: &mut u64) -> f32 {
    (0..4)
        .map(|_| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f32::from((*state >> 58) as u8) / 64.0 - 0.5
        })
        .sum()
}

#[test]
fn what_models_ask_for_is_drawn_from_a_few_blocks() {
    let mut state = 5;
    // A few tokens stand out, as they do where a model knows what comes next.
    let logits: Vec<f32> =
        (0..150_000).map(|id| normal(&mut state) + if id % 9_973 == 0 { 9.0 } else { 0.0 }).collect();
    for params in [
        SamplingParams { top_k: 20, top_p: 0.95, temperature: 0.6, ..Default::default() },
        SamplingParams { top_p: 0.9, temperature: 0.7, ..Default::default() },
        SamplingParams { min_p: 0.05, ..Default::default() },
        SamplingParams { top_k: 50, ..Default::default() },
    ] {
        let mut sampler = sampler(&SamplingParams { seed: Some(1), ..params.clone() });
        let skimmed = picked(&mut sampler, &logits).expect("blocks do").1;
        assert!(skimmed.at_least().is_some(), "{params:?}");
    }
}

/// The score of a token by way of a summary.
fn scored(logits: &[f32], id: TokenId, top: usize) -> Option<SampledToken> {
    let summary = OwnedSummary::new(logits, 1.0);
    let skim = Skim::of_token(summary.get(), id, top)?;
    let blocks = skim.blocks().iter().map(|block| logits.chunks(BLOCK).nth(*block as usize).unwrap());
    let skimmed = skim.given(&blocks.flatten().copied().collect::<Vec<_>>());
    let at_least = counted(logits, &skimmed);
    Some(skimmed.token(at_least))
}

proptest! {
    #[test]
    fn a_summary_scores_a_token_as_all_logits_do(
        logits in prop::collection::vec((-40_i8..40).prop_map(|tenths| f32::from(tenths) / 8.0), 1..1500),
        place in any::<prop::sample::Index>(),
        top in 0..21_usize,
    ) {
        let id = TokenId::try_from(place.index(logits.len())).unwrap();
        prop_assert_eq!(scored(&logits, id, top), Some(crate::score_token(&logits, id, top).unwrap()));
    }
}

#[test]
fn a_score_that_needs_every_logit_is_not_skimmed() {
    let logits = vec![0.5; 600];
    assert_eq!(scored(&logits, 600, 0), None, "there is no such token");
    assert_eq!(scored(&logits, 0, 21), None, "so many alternatives may be anywhere");
    assert_eq!(scored(&[0.5, f32::NAN], 0, 0), None);
}

#[test]
fn what_needs_every_logit_is_not_skimmed() {
    let base = SamplingParams::default;
    for params in [
        SamplingParams { sampling_mask: Some(9), ..base() },
        SamplingParams { min_tokens: 1, ..base() },
        SamplingParams { presence_penalty: 0.5, ..base() },
        SamplingParams { logit_bias: vec![(1, 1.0)], ..base() },
        SamplingParams { bad_words: vec![vec![1]], ..base() },
        SamplingParams { allowed_token_ids: Some(vec![1]), ..base() },
        SamplingParams { logprobs: Some(Logprobs::All), ..base() },
        SamplingParams { logprobs: Some(Logprobs::Top(21)), ..base() },
        SamplingParams { logprobs: Some(Logprobs::Ids(vec![1])), ..base() },
        SamplingParams { logprobs_mode: LogprobsMode::Processed, ..base() },
    ] {
        assert_eq!(sampler(&params).skims(), None, "{params:?}");
    }
    assert_eq!(sampler(&base()).skims(), Some(1.0));
}

#[test]
fn logits_that_are_not_in_order_are_left_to_the_whole_row() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut logits = vec![0.5; 600];
        logits[300] = bad;
        assert_eq!(skimmed(&mut sampler(&SamplingParams::default()), &logits), None);
    }
    assert_eq!(skimmed(&mut sampler(&SamplingParams::default()), &[f32::NEG_INFINITY; 300]), None);
}
