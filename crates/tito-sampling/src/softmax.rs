//! Weights of tokens and their sums: the arithmetic under probabilities and log-probs.
//!
//! Every sum has one fixed order and the exponential is computed here, so the same logits give the same bits on every platform;
//! the loops are written for the compiler to vectorise.

use pulp::{Arch, Simd, WithSimd};

use super::{SampleError, draw::first_exceeding};
use crate::TokenId;

/// A block's weights are summed before the blocks are; a draw then searches one block only.
pub(super) const BLOCK: usize = 256;
const LANES: usize = 8;

/// Maps a logit to `exp((logit - max) / temperature)`: the most probable token weighs exactly 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    max: f32,
    inverse_temperature: f64,
    /// The inverse temperature in powers of two: `log2(e) / temperature`.
    bits_per_logit: f64,
}

impl Scale {
    /// `max` is the greatest of the logits, `temperature` is over 0.
    pub(super) fn new(max: f32, temperature: f64) -> Self {
        let inverse_temperature = 1.0 / temperature;
        Self { max, inverse_temperature, bits_per_logit: inverse_temperature * std::f64::consts::LOG2_E }
    }

    pub(super) fn max(self) -> f32 {
        self.max
    }

    /// The factor of a logit less the greatest one in the power of two that is its weight.
    #[cfg(feature = "cuda")]
    pub(super) fn bits_per_logit(self) -> f64 {
        self.bits_per_logit
    }

    /// The natural logarithm of the weight: 0 for the most probable token, never over 0.
    #[inline]
    pub(super) fn exponent(self, logit: f32) -> f64 {
        (f64::from(logit) - f64::from(self.max)) * self.inverse_temperature
    }

    /// In [0, 1]; NaN for a NaN logit.
    #[inline]
    pub(super) fn weight(self, logit: f32) -> f64 {
        exp2((f64::from(logit) - f64::from(self.max)) * self.bits_per_logit)
    }

    /// A logit below which every weight is less than `weight`; a little too low rather than too high.
    pub(super) fn logit_below(self, weight: f64) -> f32 {
        let logit = f64::from(self.max) + (weight.ln() - 1e-9) / self.inverse_temperature;
        #[expect(clippy::cast_possible_truncation, reason = "rounded down just after")]
        let nearest = logit as f32;
        nearest.next_down()
    }
}

/// The greatest logit. An error unless it is finite; NaN elsewhere is left to [`BlockSums::compute`].
pub(super) fn max_logit(logits: &[f32]) -> Result<f32, SampleError> {
    let greater = |max: f32, logit: f32| if logit > max { logit } else { max };
    let (groups, rest) = logits.as_chunks::<32>();
    let mut lanes = [f32::NEG_INFINITY; 32];
    for group in groups {
        for (lane, &logit) in lanes.iter_mut().zip(group) {
            *lane = greater(*lane, logit);
        }
    }
    let max = lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, greater);
    if max == f32::INFINITY || (max == f32::NEG_INFINITY && logits.iter().any(|logit| logit.is_nan())) {
        return Err(SampleError::NonFiniteLogits);
    }
    if max == f32::NEG_INFINITY { Err(SampleError::NothingLeft) } else { Ok(max) }
}

/// The weights of many tokens, summed in blocks in the order of the tokens.
#[derive(Debug, Default)]
pub(super) struct BlockSums {
    blocks: Vec<f64>,
    /// Room for the weights of tokens that are listed.
    weights: Vec<f64>,
    total: f64,
}

impl BlockSums {
    /// Sums the weights of `logits`; an error when one is NaN.
    pub(super) fn compute(&mut self, logits: &[f32], scale: Scale) -> Result<&Self, SampleError> {
        self.blocks.clear();
        Arch::new().dispatch(SumBlocks { blocks: &mut self.blocks, logits, scale });
        self.total = self.blocks.iter().sum();
        if self.total.is_nan() { Err(SampleError::NonFiniteLogits) } else { Ok(self) }
    }

    /// The same of a row of `vocab_size` logits that are -infinity but for some tokens, given with their logits: to the bit what
    /// [`compute`](Self::compute) gives of that row, without looking at all of it. Ids are ascending.
    pub(super) fn compute_listed(
        &mut self,
        (ids, logits): (&[TokenId], &[f32]),
        vocab_size: usize,
        scale: Scale,
    ) -> Result<&Self, SampleError> {
        let Self { blocks, weights, .. } = self;
        blocks.clear();
        blocks.resize(vocab_size.div_ceil(BLOCK), 0.0);
        weights.clear();
        Arch::new().dispatch(Weigh { weights, logits, scale });
        let mut weights = &**weights;
        for ids in ids.chunk_by(|id, next| block_of_id(*id) == block_of_id(*next)) {
            let block = block_of_id(ids[0]);
            let own = weights.split_off(..ids.len()).expect("each token has a logit");
            blocks[block] = listed_sum(ids, own, BLOCK.min(vocab_size - block * BLOCK));
        }
        self.total = self.blocks.iter().sum();
        if self.total.is_nan() { Err(SampleError::NonFiniteLogits) } else { Ok(self) }
    }

    /// At least 1, the weight of the most probable token.
    pub(super) fn total(&self) -> f64 {
        self.total
    }

    /// The sum of each block.
    pub(super) fn into_blocks(self) -> Vec<f64> {
        self.blocks
    }

    /// The block with the first token whose cumulative weight exceeds `uniform` of the total; the weight before that
    /// block, and the weight to exceed.
    pub(super) fn block_of(blocks: &[f64], uniform: f64) -> (usize, f64, f64) {
        let target = uniform * blocks.iter().sum::<f64>();
        let (mut block, mut before, mut after) = (0, 0.0, 0.0);
        for (index, &sum) in blocks.iter().enumerate().filter(|&(_, &sum)| sum > 0.0) {
            (block, before) = (index, after);
            after += sum;
            if after > target {
                break;
            }
        }
        (block, before, target)
    }

    /// The first token whose cumulative weight exceeds `uniform` (in [0, 1)) of the total. `logits` and `scale` are
    /// those of [`BlockSums::compute`].
    pub(super) fn locate(&self, logits: &[f32], scale: Scale, uniform: f64) -> usize {
        let (block, before, target) = Self::block_of(&self.blocks, uniform);
        let start = block * BLOCK;
        let weights = logits[start..].iter().take(BLOCK).map(|&logit| scale.weight(logit));
        start + first_exceeding(weights, before, target)
    }

    /// The place of the same token among some that are listed, which are those of [`BlockSums::compute_listed`].
    pub(super) fn locate_listed(&self, (ids, logits): (&[TokenId], &[f32]), scale: Scale, uniform: f64) -> usize {
        let (block, before, target) = Self::block_of(&self.blocks, uniform);
        let start = ids.partition_point(|id| block_of_id(*id) < block);
        let listed = ids[start..].iter().take_while(|id| block_of_id(**id) == block).count();
        let weights = logits[start..start + listed].iter().map(|&logit| scale.weight(logit));
        start + first_exceeding(weights, before, target)
    }
}

/// The number of the block that has a token.
fn block_of_id(id: TokenId) -> usize {
    id as usize / BLOCK
}

/// The loop over all logits, compiled for several instruction sets. The compiler neither reorders nor fuses arithmetic,
/// so that all of them give the same bits.
struct SumBlocks<'a> {
    blocks: &'a mut Vec<f64>,
    logits: &'a [f32],
    scale: Scale,
}

impl WithSimd for SumBlocks<'_> {
    type Output = ();

    #[expect(clippy::inline_always, reason = "only what is inlined uses the wider instructions")]
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { blocks, logits, scale } = self;
        for block in logits.chunks(BLOCK) {
            blocks.push(block_sum(block, scale));
        }
    }
}

/// The weights of tokens, compiled likewise.
struct Weigh<'a> {
    weights: &'a mut Vec<f64>,
    logits: &'a [f32],
    scale: Scale,
}

impl WithSimd for Weigh<'_> {
    type Output = ();

    #[expect(clippy::inline_always, reason = "only what is inlined uses the wider instructions")]
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { weights, logits, scale } = self;
        weights.extend(logits.iter().map(|&logit| scale.weight(logit)));
    }
}

/// The sum of a block of this length of which only some tokens weigh anything: in the order of [`block_sum`], where nothing is added
/// for the others.
fn listed_sum(ids: &[TokenId], weights: &[f64], length: usize) -> f64 {
    let grouped = length / LANES * LANES;
    let (mut lanes, mut rest) = ([0.0; LANES], [0.0; LANES]);
    for (id, weight) in ids.iter().zip(weights) {
        let place = *id as usize % BLOCK;
        let sums = if place < grouped { &mut lanes } else { &mut rest };
        sums[place % LANES] += weight;
    }
    lanes.iter().chain(&rest[..length - grouped]).sum()
}

#[expect(clippy::inline_always, reason = "only what is inlined uses the wider instructions")]
#[inline(always)]
fn block_sum(logits: &[f32], scale: Scale) -> f64 {
    // Written out before they are summed: that keeps the compiler from giving up on vectorising both.
    let mut weights = [0.0; BLOCK];
    let weights = &mut weights[..logits.len()];
    for (weight, &logit) in weights.iter_mut().zip(logits) {
        *weight = scale.weight(logit);
    }
    let (groups, rest) = weights.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for group in groups {
        for (lane, weight) in lanes.iter_mut().zip(group) {
            *lane += weight;
        }
    }
    lanes.iter().chain(rest).sum()
}

/// `2^x` for `x` up to 0, within 1e-13 of its value; exactly 1 for 0, 0 below -1000, NaN for NaN.
///
/// Not the standard library's: that is the platform's, so its last bit and with it a drawn token could differ between
/// machines, and it is not vectorised.
#[inline]
fn exp2(x: f64) -> f64 {
    // Adding 1.5 * 2^52 rounds to an integer and leaves that integer in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // The polynomial of degree 9 with the constant term 1 that has the least relative error (3e-14) on [-1/2, 1/2].
    const C1: f64 = 0.693_147_180_559_936_8;
    const C2: f64 = 0.240_226_506_957_639_47;
    const C3: f64 = 0.055_504_108_665_504_565;
    const C4: f64 = 0.009_618_129_170_900_346;
    const C5: f64 = 0.001_333_355_804_203_540_4;
    const C6: f64 = 0.000_154_034_482_220_766_87;
    const C7: f64 = 1.525_277_262_416_612_7e-5;
    const C8: f64 = 1.325_675_204_502_659_3e-6;
    const C9: f64 = 1.018_597_176_521_635_5e-7;
    let shifted = x + ROUND;
    let fraction = x - (shifted - ROUND);
    let square = fraction * fraction;
    let fourth = square * square;
    // Estrin's order rather than Horner's: short chains keep the processor busy.
    let low = (1.0 + C1 * fraction) + (C2 + C3 * fraction) * square;
    let high = (C4 + C5 * fraction) + (C6 + C7 * fraction) * square + (C8 + C9 * fraction) * fourth;
    let power_of_two = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1.0_f64.to_bits()));
    if x < -1000.0 { 0.0 } else { (low + high * fourth) * power_of_two }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tokens_that_are_listed_have_the_sums_of_a_row_that_has_nothing_else(
            vocab_size in 1_usize..1500,
            share in prop::sample::select(vec![1_u32, 3, 20, 90, 99]),
            seed in any::<u32>(),
            (temperature, uniform) in (0.3..2.0_f64, 0.0..1.0_f64),
        ) {
            let hash = |id: TokenId| id.wrapping_mul(2_654_435_761).wrapping_add(seed).rotate_left(15).wrapping_mul(40_503) >> 8;
            let ids: Vec<TokenId> = (0..TokenId::try_from(vocab_size).unwrap()).filter(|id| hash(*id) % 100 < share).collect();
            prop_assume!(!ids.is_empty());
            let logits: Vec<f32> = ids.iter().map(|id| f32::from(u16::try_from(hash(*id) % 997).unwrap()) / 31.0).collect();
            let mut row = vec![f32::NEG_INFINITY; vocab_size];
            for (id, logit) in ids.iter().zip(&logits) {
                row[*id as usize] = *logit;
            }
            let scale = Scale::new(max_logit(&logits).unwrap(), temperature);
            let (mut listed, mut whole) = (BlockSums::default(), BlockSums::default());
            listed.compute_listed((&ids, &logits), vocab_size, scale).unwrap();
            whole.compute(&row, scale).unwrap();
            prop_assert_eq!(&listed.blocks, &whole.blocks);
            let place = listed.locate_listed((&ids, &logits), scale, uniform);
            prop_assert_eq!(ids[place] as usize, whole.locate(&row, scale, uniform));
        }
    }

    #[test]
    fn wider_instructions_change_no_bit() {
        let logits: Vec<f32> = (0_u16..20_000).map(|id| f32::from(id.wrapping_mul(40_503)) / 1_500.0).collect();
        let scale = Scale::new(max_logit(&logits).unwrap(), 0.9);
        let mut sums = BlockSums::default();
        sums.compute(&logits, scale).unwrap();
        let plain: Vec<f64> = logits.chunks(BLOCK).map(|block| block_sum(block, scale)).collect();
        assert_eq!(sums.blocks, plain);
    }

    #[test]
    fn exp2_agrees_with_the_standard_library() {
        for step in 0..=400_000 {
            let x = -f64::from(step) / 400.0;
            let relative = (exp2(x) / x.exp2() - 1.0).abs();
            assert!(relative < 1e-13, "exp2({x}) is off by {relative}");
        }
    }

    #[test]
    fn exp2_is_exact_at_its_edges() {
        assert_eq!(exp2(0.0).to_bits(), 1.0_f64.to_bits());
        assert_eq!(exp2(-0.0).to_bits(), 1.0_f64.to_bits());
        assert_eq!(exp2(-1000.1), 0.0);
        assert_eq!(exp2(f64::MIN), 0.0);
        assert_eq!(exp2(f64::NEG_INFINITY), 0.0);
        assert!(exp2(f64::NAN).is_nan());
    }

    #[test]
    fn the_greatest_logit_is_found_at_every_length() {
        for length in 1..100_u8 {
            for place in 0..length {
                let logits: Vec<f32> = (0..length).map(|i| if i == place { -1.0 } else { -2.0 }).collect();
                assert_eq!(max_logit(&logits), Ok(-1.0));
            }
        }
    }

    #[test]
    fn logits_without_a_finite_greatest_one_are_errors() {
        assert_eq!(max_logit(&[]), Err(SampleError::NothingLeft));
        assert_eq!(max_logit(&[f32::NEG_INFINITY; 40]), Err(SampleError::NothingLeft));
        assert_eq!(max_logit(&[f32::NEG_INFINITY, f32::NAN]), Err(SampleError::NonFiniteLogits));
        assert_eq!(max_logit(&[0.0, f32::INFINITY]), Err(SampleError::NonFiniteLogits));
    }

    #[test]
    fn a_nan_anywhere_shows_in_the_sum() {
        for place in [0, 7, 8, 511, 512, 1023, 1029] {
            let mut logits = vec![0.0; 1030];
            logits[place] = f32::NAN;
            let scale = Scale::new(max_logit(&logits).unwrap(), 1.0);
            let mut sums = BlockSums::default();
            assert_eq!(sums.compute(&logits, scale).map(BlockSums::total), Err(SampleError::NonFiniteLogits));
        }
    }

    #[test]
    fn each_token_owns_its_share_of_the_unit_interval() {
        let logits: Vec<f32> = (0..2000_u16).map(|i| if i % 3 == 0 { 0.0 } else { f32::NEG_INFINITY }).collect();
        let scale = Scale::new(0.0, 1.0);
        let mut sums = BlockSums::default();
        sums.compute(&logits, scale).unwrap();
        assert_eq!(sums.total(), 667.0);
        for share in 0..667_u16 {
            let uniform = (f64::from(share) + 0.5) / 667.0;
            assert_eq!(sums.locate(&logits, scale, uniform), usize::from(share) * 3);
        }
        assert_eq!(sums.locate(&logits, scale, 1.0), 1998);
    }

    #[test]
    fn a_logit_below_a_weight_weighs_no_more_than_it() {
        let scale = Scale::new(12.5, 0.7);
        for weight in [1.0, 0.5, 0.1, 1e-3, 1e-9, 1e-300, 0.0] {
            assert!(scale.weight(scale.logit_below(weight)) <= weight);
        }
    }
}
