//! A position's token from sums over its logits and a few blocks of them, for devices from which a whole vocabulary is
//! a long way.
//!
//! Owns which requests that serves: those whose logits nothing edits and nothing truncates, which is how rollouts are
//! sampled. What comes out is what [`SequenceSampler::step`] gives, to the bit: the sums are the same sums, and the
//! draw looks into the same block of them.

use super::{
    Logprobs, LogprobsMode, SampledToken, SequenceSampler, Step, TopLogprob,
    best::{Candidate, best_first},
    draw::first_exceeding,
    log_probs::Distribution,
    sampler::Method,
    softmax::{BLOCK, BlockSums, Scale},
};
use crate::TokenId;

/// Logits of a block; the last one of a vocabulary may have fewer.
pub const SKIM_BLOCK: usize = BLOCK;
/// More alternatives than this are looked for in all logits.
const MOST_ALTERNATIVES: usize = 20;

/// What a device says of one row of logits: of each block the greatest logit, which is never NaN, the sum of the weights,
/// and the sum of the weights at the temperature.
#[derive(Debug, Clone, Copy)]
pub struct Summary<'a> {
    /// -infinity where there is none.
    pub maxima: &'a [f32],
    /// NaN where a logit is.
    pub raw: &'a [f64],
    /// The sums at the temperature of [`SequenceSampler::skims`].
    pub scaled: &'a [f64],
}

/// A summary that is made where the logits are.
#[derive(Debug, Clone, Default)]
pub struct OwnedSummary {
    maxima: Vec<f32>,
    raw: Vec<f64>,
    scaled: Vec<f64>,
}

impl OwnedSummary {
    /// What a device would say of `logits`.
    pub fn new(logits: &[f32], temperature: f64) -> Self {
        let greatest = |block: &[f32]| block.iter().copied().fold(f32::NEG_INFINITY, greater);
        let maxima: Vec<f32> = logits.chunks(BLOCK).map(greatest).collect();
        let max = maxima.iter().copied().fold(f32::NEG_INFINITY, greater);
        let sums = |temperature| {
            let mut sums = BlockSums::default();
            // A logit that is NaN shows in the sums.
            let _ = sums.compute(logits, Scale::new(max, temperature));
            sums.into_blocks()
        };
        Self { raw: sums(1.0), scaled: sums(temperature), maxima }
    }

    /// The numbers.
    pub fn get(&self) -> Summary<'_> {
        Summary { maxima: &self.maxima, raw: &self.raw, scaled: &self.scaled }
    }
}

fn greater(max: f32, logit: f32) -> f32 {
    if logit > max { logit } else { max }
}

/// The factor of a logit less the greatest one in the power of two that is its weight.
#[cfg(feature = "cuda")]
pub fn bits_per_logit(temperature: f64) -> f64 {
    Scale::new(0.0, temperature).bits_per_logit()
}

/// What is known of a position between a summary and the token.
#[derive(Debug)]
pub struct Skim {
    scale: Scale,
    raw_scale: Scale,
    raw_total: f64,
    /// The block of the draw, the weight before it, and the weight to exceed; `None` takes the best.
    draw: Option<(usize, f64, f64)>,
    /// Ascending.
    blocks: Vec<u32>,
    alternatives: usize,
}

/// The token of a position, whose rank is still to be counted.
#[derive(Debug)]
pub struct Skimmed {
    candidate: Candidate,
    logprob: f32,
    top_logprobs: Vec<TopLogprob>,
}

impl Skim {
    /// The blocks to read.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// The token, from the logits of the blocks, one after another.
    ///
    /// # Panics
    /// Where the logits are not those of [`blocks`](Self::blocks).
    pub fn pick(&self, logits: &[f32]) -> Skimmed {
        let blocks = self.blocks.iter().zip(logits.chunks(BLOCK));
        let mut candidates: Vec<Candidate> =
            blocks.clone().flat_map(|(block, logits)| (*block * SKIM_IDS..).zip(logits.iter().copied())).collect();
        let candidate = if let Some((drawn, before, target)) = self.draw {
            let (block, logits) = blocks
                .into_iter()
                .find(|(block, _)| **block as usize == drawn)
                .expect("the block of the draw is among those that were asked for");
            let place = first_exceeding(logits.iter().map(|logit| self.scale.weight(*logit)), before, target);
            let id = *block * SKIM_IDS + TokenId::try_from(place).expect("a block is short");
            (id, logits[place])
        } else {
            *candidates.iter().min_by(|left, right| best_first(left, right)).expect("a vocabulary is not empty")
        };
        candidates.sort_unstable_by(best_first);
        candidates.truncate(self.alternatives);
        let distribution = Distribution::new(&[], self.raw_scale, self.raw_total);
        Skimmed {
            logprob: distribution.logprob(candidate.1),
            top_logprobs: (1..).zip(candidates).map(|(rank, candidate)| distribution.ranked(candidate, rank)).collect(),
            candidate,
        }
    }
}

impl Skimmed {
    /// The logit of the token.
    pub fn logit(&self) -> f32 {
        self.candidate.1
    }
}

impl SequenceSampler {
    /// The temperature of the weights of the next position, if a summary of its logits may do.
    pub fn skims(&self) -> Option<f64> {
        let few = matches!(&self.params.logprobs, None | Some(Logprobs::Top(0..=MOST_ALTERNATIVES)));
        let untouched = self.allowed.is_none()
            && self.constrained.is_none()
            && self.penalties.is_none()
            && self.params.bad_words.is_empty()
            && self.params.logit_bias.is_empty()
            && self.params.sampling_mask.is_none()
            && self.output.len() >= self.params.min_tokens;
        let raw = self.params.logprobs_mode == LogprobsMode::Raw;
        match self.method {
            _ if !(few && untouched && raw) => None,
            Method::Greedy => Some(1.0),
            Method::Draw(_) => Some(self.params.temperature),
            Method::TruncatedDraw(..) => None,
        }
    }

    /// Looks at a summary; `None` where all logits are needed, to say what is wrong with them.
    ///
    /// # Panics
    /// Where the summary is of more blocks than a [`TokenId`] can number.
    pub fn skim(&mut self, summary: Summary<'_>) -> Option<Skim> {
        let temperature = self.skims()?;
        let max = summary.maxima.iter().copied().fold(f32::NEG_INFINITY, greater);
        let raw_total: f64 = summary.raw.iter().sum();
        if !max.is_finite() || raw_total.is_nan() {
            return None;
        }
        let position = self.output.len();
        let draw = match &mut self.method {
            Method::Draw(uniforms) => Some(BlockSums::block_of(summary.scaled, uniforms.at(position))),
            _ => None,
        };
        let alternatives = match self.params.logprobs {
            Some(Logprobs::Top(n)) => n,
            _ => 0,
        };
        // Every better token than the n-th best block's best is in one of the blocks before.
        let mut best: Vec<(u32, f32)> = (0..).zip(summary.maxima.iter().copied()).collect();
        let needed = alternatives.max(usize::from(draw.is_none())).min(best.len());
        if needed < best.len() {
            best.select_nth_unstable_by(needed, best_first);
        }
        let mut blocks: Vec<u32> = best[..needed].iter().map(|(block, _)| *block).collect();
        blocks.extend(draw.map(|(block, ..)| u32::try_from(block).expect("a vocabulary has fewer blocks")));
        blocks.sort_unstable();
        blocks.dedup();
        let (scale, raw_scale) = (Scale::new(max, temperature), Scale::new(max, 1.0));
        Some(Skim { scale, raw_scale, raw_total, draw, blocks, alternatives })
    }

    /// Ends the position; `at_least` counts the logits that are at least that of the token.
    pub fn conclude(&mut self, skimmed: Skimmed, at_least: u32) -> Step {
        let Skimmed { candidate: (id, _), logprob, top_logprobs } = skimmed;
        let listed = top_logprobs.iter().find(|top| top.id == id).map(|top| top.rank);
        let token = SampledToken { id, logprob, rank: listed.unwrap_or(at_least), top_logprobs, sampling_mask: None };
        self.output.push(id);
        Step { token, finish: self.params.finish_after(id, self.output.len()) }
    }
}

/// As ids count them.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const SKIM_IDS: TokenId = BLOCK as TokenId;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::SamplingParams;

    fn sampler(params: &SamplingParams) -> SequenceSampler {
        SequenceSampler::new(params.clone().valid(), Arc::new([]))
    }

    /// A position by way of a summary, where that may be.
    fn skimmed(sampler: &mut SequenceSampler, logits: &[f32]) -> Option<Step> {
        let summary = OwnedSummary::new(logits, sampler.skims()?);
        let skim = sampler.skim(summary.get())?;
        let read: Vec<f32> = skim
            .blocks()
            .iter()
            .flat_map(|block| logits.chunks(BLOCK).nth(*block as usize).unwrap())
            .copied()
            .collect();
        let skimmed = skim.pick(&read);
        let at_least = logits.iter().filter(|logit| **logit >= skimmed.logit()).count();
        Some(sampler.conclude(skimmed, u32::try_from(at_least).unwrap()))
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

    #[test]
    fn what_needs_every_logit_is_not_skimmed() {
        let base = SamplingParams::default;
        for params in [
            SamplingParams { top_p: 0.9, ..base() },
            SamplingParams { top_k: 5, ..base() },
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
}
