//! A position's token from sums over its logits and a few blocks of them, for devices from which a whole vocabulary is
//! a long way.
//!
//! Owns which requests that serves: those whose logits nothing edits, which is how rollouts are sampled; and scores of
//! tokens of prompts with a few alternatives. Where a draw is truncated, the blocks have every token that stays, or all
//! logits are looked at after all. What comes out is what [`SequenceSampler::step`] and
//! [`score`](super::score) give, to the bit: the sums are the same sums, and the draw looks into the same block of them.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::{
    Logprobs, LogprobsMode, SampledToken, SequenceSampler, Step, TopLogprob,
    best::{Candidate, best_first},
    draw::first_exceeding,
    log_probs::Distribution,
    sampler::Method,
    softmax::{BLOCK, BlockSums, Scale},
    truncation::KnownLogits,
};
use crate::TokenId;

/// Logits of a block; the last one of a vocabulary may have fewer.
pub const SKIM_BLOCK: usize = BLOCK;
/// More alternatives than this are looked for in all logits.
const MOST_ALTERNATIVES: usize = 20;
/// Tokens that stay are looked for in no more blocks than this.
const MOST_BLOCKS: usize = 64;

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
    /// How many logits there are.
    pub vocab_size: usize,
}

/// A summary that is made where the logits are.
#[derive(Debug, Clone, Default)]
pub struct OwnedSummary {
    maxima: Vec<f32>,
    raw: Vec<f64>,
    scaled: Vec<f64>,
    vocab_size: usize,
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
        Self { raw: sums(1.0), scaled: sums(temperature), maxima, vocab_size: logits.len() }
    }

    /// The numbers.
    pub fn get(&self) -> Summary<'_> {
        Summary { maxima: &self.maxima, raw: &self.raw, scaled: &self.scaled, vocab_size: self.vocab_size }
    }
}

impl Summary<'_> {
    /// The greatest logit, which is never NaN.
    pub(super) fn max(&self) -> f32 {
        self.maxima.iter().copied().fold(f32::NEG_INFINITY, greater)
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

/// Which token of a position it is.
#[derive(Debug, Clone, Copy)]
enum Pick {
    Best,
    /// That of a draw: its block, the weight before it, and the weight to exceed.
    Drawn(usize, f64, f64),
    /// That of a draw from the most probable tokens, and the sum of the weights of all.
    Truncated(f64),
    Given(TokenId),
}

impl Pick {
    /// The block in which it is looked for; the best is in one that is read for alternatives.
    fn block(self) -> Option<u32> {
        match self {
            Self::Best | Self::Truncated(_) => None,
            Self::Drawn(block, ..) => Some(u32::try_from(block).expect("a vocabulary has fewer blocks")),
            Self::Given(id) => Some(id / SKIM_IDS),
        }
    }
}

/// What is known of a position between a summary and the token.
#[derive(Debug)]
pub struct Skim {
    scale: Scale,
    raw_scale: Scale,
    raw_total: f64,
    pick: Pick,
    /// Ascending.
    blocks: Vec<u32>,
    /// No logit of the other blocks is greater. Infinity where blocks are not ranked.
    unread: f32,
    vocab_size: usize,
    alternatives: usize,
}

/// The token of a position.
#[derive(Debug)]
pub struct Skimmed {
    candidate: Candidate,
    logprob: f32,
    at_least: Option<u32>,
    top_logprobs: Vec<TopLogprob>,
    sampling_mask: Option<Arc<[TokenId]>>,
}

impl Skim {
    /// Looks at a summary of a position of a prompt, whose token is given; with it go the `top` most probable ones. `None`
    /// where all logits are needed: for more alternatives, and to say what is wrong.
    pub fn of_token(summary: Summary<'_>, id: TokenId, top: usize) -> Option<Self> {
        let is_served = top <= MOST_ALTERNATIVES && (id as usize) < summary.vocab_size;
        if is_served { Self::new(summary, 1.0, false, |_, _| Some((Pick::Given(id), 0)), top) } else { None }
    }

    /// `pick` looks at the blocks and at the scale of weights, and says how many of the best blocks it needs. Where it says
    /// none and there are no alternatives, blocks are not ranked: `is_ranked` says so before.
    fn new(
        summary: Summary<'_>,
        temperature: f64,
        is_ranked: bool,
        pick: impl FnOnce(&[(u32, f32)], Scale) -> Option<(Pick, usize)>,
        alternatives: usize,
    ) -> Option<Self> {
        let max = summary.max();
        let raw_total: f64 = summary.raw.iter().sum();
        if !max.is_finite() || raw_total.is_nan() {
            return None;
        }
        let (scale, raw_scale) = (Scale::new(max, temperature), Scale::new(max, 1.0));
        let mut best: Vec<(u32, f32)> = Vec::new();
        if is_ranked || alternatives > 0 {
            best.extend((0..).zip(summary.maxima.iter().copied()));
            best.sort_unstable_by(best_first);
        }
        let (pick, needed) = pick(&best, scale)?;
        // Every better token than the n-th best block's best is in one of the blocks before.
        let needed = needed.max(alternatives).min(best.len());
        let mut blocks: Vec<u32> = best[..needed].iter().map(|(block, _)| *block).collect();
        blocks.extend(pick.block());
        blocks.sort_unstable();
        blocks.dedup();
        let unread = match best.get(needed) {
            Some((_, max)) => *max,
            None if best.is_empty() => f32::INFINITY,
            None => f32::NEG_INFINITY,
        };
        let vocab_size = summary.vocab_size;
        Some(Self { scale, raw_scale, raw_total, pick, blocks, unread, vocab_size, alternatives })
    }

    /// The blocks to read.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// The tokens of the blocks, whose logits come one after another.
    fn candidates<'a>(&'a self, logits: &'a [f32]) -> impl Iterator<Item = Candidate> + 'a {
        let blocks = self.blocks.iter().zip(logits.chunks(BLOCK));
        blocks.flat_map(|(block, logits)| (*block * SKIM_IDS..).zip(logits.iter().copied()))
    }

    /// The id of a token by the place of its logit.
    fn id_at(&self, place: usize) -> TokenId {
        let within = TokenId::try_from(place % BLOCK).expect("a block is short");
        self.blocks[place / BLOCK] * SKIM_IDS + within
    }

    /// The token that is given, from the logits of the blocks, one after another.
    ///
    /// # Panics
    /// Where the logits are not those of [`blocks`](Self::blocks), or no token is given.
    pub fn given(&self, logits: &[f32]) -> Skimmed {
        let Pick::Given(id) = self.pick else { unreachable!("a token of a prompt is given") };
        let given = self.candidates(logits).find(|(other, _)| *other == id);
        self.skimmed(given.expect("its block is among those that were asked for"), logits)
    }

    fn skimmed(&self, candidate: Candidate, logits: &[f32]) -> Skimmed {
        let mut best: Vec<Candidate> = Vec::new();
        if self.alternatives > 0 {
            best.extend(self.candidates(logits));
            best.sort_unstable_by(best_first);
            best.truncate(self.alternatives);
        }
        let distribution = Distribution::new(&[], self.raw_scale, self.raw_total);
        Skimmed {
            logprob: distribution.logprob(candidate.1),
            top_logprobs: (1..).zip(best).map(|(rank, candidate)| distribution.ranked(candidate, rank)).collect(),
            at_least: self.at_least(candidate.1, logits),
            candidate,
            sampling_mask: None,
        }
    }

    /// How many logits are at least this one, if all of them are in the blocks that were read.
    fn at_least(&self, logit: f32, logits: &[f32]) -> Option<u32> {
        (logit > self.unread).then(|| logits.iter().map(|other| u32::from(*other >= logit)).sum())
    }
}

impl Skimmed {
    /// The logit of the token.
    pub fn logit(&self) -> f32 {
        self.candidate.1
    }

    /// How many logits are at least that of the token, where the blocks that were read tell it. Otherwise they are to be counted.
    pub fn at_least(&self) -> Option<u32> {
        self.at_least
    }

    /// The token; `at_least` counts the logits that are at least its own.
    pub fn token(self, at_least: u32) -> SampledToken {
        let Self { candidate: (id, _), logprob, top_logprobs, sampling_mask, .. } = self;
        let listed = top_logprobs.iter().find(|top| top.id == id).map(|top| top.rank);
        SampledToken { id, logprob, rank: listed.unwrap_or(at_least), top_logprobs, sampling_mask }
    }
}

impl SequenceSampler {
    /// The temperature of the weights of the next position, if a summary of its logits may do.
    pub fn skims(&self) -> Option<f64> {
        let few = matches!(&self.params.logprobs, None | Some(Logprobs::Top(0..=MOST_ALTERNATIVES)));
        let untouched = !self.edits_logits();
        let raw = self.params.logprobs_mode == LogprobsMode::Raw;
        match self.method {
            _ if !(few && untouched && raw) => None,
            Method::Greedy => Some(1.0),
            // Whatever has a weight could be drawn.
            Method::Draw(_) if self.params.sampling_mask.is_some() => None,
            Method::Draw(_) | Method::TruncatedDraw(..) => Some(self.params.temperature),
        }
    }

    /// Looks at a summary; `None` where all logits are needed, to say what is wrong with them.
    ///
    /// # Panics
    /// Where the summary is of more blocks than a [`TokenId`] can number.
    pub fn skim(&mut self, summary: Summary<'_>) -> Option<Skim> {
        let temperature = self.skims()?;
        let alternatives = match self.params.logprobs {
            Some(Logprobs::Top(n)) => n,
            _ => 0,
        };
        let position = self.output.len();
        let is_ranked = !matches!(self.method, Method::Draw(_));
        let pick = |best: &[(u32, f32)], scale| match &mut self.method {
            Method::Greedy => Some((Pick::Best, 1)),
            Method::Draw(uniforms) => {
                let (block, before, target) = BlockSums::block_of(summary.scaled, uniforms.at(position));
                Some((Pick::Drawn(block, before, target), 0))
            }
            Method::TruncatedDraw(_, truncation) => {
                let blocks = best.iter().map(|(block, max)| (*max, summary.scaled[*block as usize]));
                let needed = truncation.blocks_needed(blocks, (scale, summary.vocab_size), MOST_BLOCKS)?;
                Some((Pick::Truncated(summary.scaled.iter().sum()), needed))
            }
        };
        Skim::new(summary, temperature, is_ranked, pick, alternatives)
    }

    /// The token of a skimmed position, from the logits of its blocks, one after another; `None` where all logits are needed
    /// after all.
    ///
    /// # Panics
    /// Where the logits are not those of [`Skim::blocks`].
    pub fn pick(&mut self, skim: &Skim, logits: &[f32]) -> Option<Skimmed> {
        let candidate = match (skim.pick, &mut self.method) {
            (Pick::Best, _) => skim.candidates(logits).min_by(best_first).expect("a vocabulary is not empty"),
            (Pick::Drawn(drawn, before, target), _) => {
                let place = skim.blocks.iter().position(|block| *block as usize == drawn);
                let first = BLOCK * place.expect("the block of the draw is among those that were asked for");
                let weights = logits[first..].iter().take(BLOCK).map(|logit| skim.scale.weight(*logit));
                let place = first + first_exceeding(weights, before, target);
                (skim.id_at(place), logits[place])
            }
            (Pick::Truncated(total), Method::TruncatedDraw(uniforms, truncation)) => {
                let known = KnownLogits { logits, vocab_size: skim.vocab_size, unread: skim.unread };
                if !truncation.apply_to_part(known, skim.scale, total) {
                    return None;
                }
                let place = truncation.locate(uniforms.at(self.output.len()));
                (skim.id_at(place), logits[place])
            }
            _ => unreachable!("it was skimmed for this sampler"),
        };
        let sampling_mask = match (self.params.sampling_mask, &self.method) {
            (None, _) => None,
            (Some(most), Method::TruncatedDraw(_, truncation)) => {
                let ids = truncation.candidates().iter().map(|(place, _)| skim.id_at(*place as usize));
                Some(ids.collect::<Arc<[TokenId]>>()).filter(|mask| mask.len() <= most).map(Some)?
            }
            (Some(_), _) => Some([candidate.0].into()),
        };
        Some(Skimmed { sampling_mask, ..skim.skimmed(candidate, logits) })
    }

    /// Ends the position; `at_least` counts the logits that are at least that of the token.
    pub fn conclude(&mut self, skimmed: Skimmed, at_least: u32) -> Step {
        self.end_position(skimmed.token(at_least))
    }
}

/// As ids count them.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const SKIM_IDS: TokenId = BLOCK as TokenId;
