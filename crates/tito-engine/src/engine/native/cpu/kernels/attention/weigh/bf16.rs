//! Weights in bf16 with vectors of 512 bits, which are half of the work of attention where tiles do the products.
//!
//! Fused operations, and no pass over the scores but two: what is masked and what is scaled is not written back. So the last
//! bits are others than those of `exp_nonpositive`.

use std::arch::x86_64::{
    __m256bh, __m256i, __m512, __mmask16, _CMP_NLT_UQ, _mm256_storeu_si256, _mm512_add_epi32, _mm512_add_ps,
    _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cvtneps_pbh, _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_loadu_ps,
    _mm512_mask_cmp_ps_mask, _mm512_mask_max_ps, _mm512_maskz_mul_ps, _mm512_mul_ps, _mm512_reduce_add_ps,
    _mm512_reduce_max_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32, _mm512_sub_ps,
};

use super::{
    super::super::{
        LANES,
        exp::{FROM_SQUARE, LEAST, LN_2_HIGH, LN_2_LOW, ROUND},
    },
    scores::Scores,
};

/// Writes a weight for each score.
///
/// # Safety
/// The processor has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")]
pub(super) unsafe fn weigh(row: Scores<'_>, weights: &mut [u16]) {
    let (first, end) = row.seen;
    if first >= end {
        weights.fill(0);
    } else if first == 0 && end == row.numbers.len() {
        weigh_seen(row, weights, |_| __mmask16::MAX);
    } else {
        weigh_seen(row, weights, |group| lanes_between(first, end, group * LANES));
    }
}

/// The lanes of the group that begins at `start` whose keys lie in `first..end`.
#[inline]
fn lanes_between(first: usize, end: usize, start: usize) -> __mmask16 {
    let below = |key: usize| (1_u32 << key.saturating_sub(start).min(LANES)) - 1;
    u16::try_from(below(end) & !below(first)).expect("a group has 16 lanes")
}

/// Writes a weight for each score, 0 for those in no lane of `seen`, which takes the number of a group of 16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")]
fn weigh_seen(mut row: Scores<'_>, weights: &mut [u16], seen: impl Fn(usize) -> __mmask16) {
    let scale = _mm512_set1_ps(row.shape());
    let Scores { numbers: scores, sums, running, .. } = row;
    let (groups, _) = scores.as_chunks::<LANES>();
    let scaled = |group: &[f32; LANES]| {
        // SAFETY: a group has 16 numbers.
        _mm512_mul_ps(unsafe { _mm512_loadu_ps(group.as_ptr()) }, scale)
    };
    let mut most = _mm512_set1_ps(f32::NEG_INFINITY);
    for (index, group) in groups.iter().enumerate() {
        // Of a score that is no number, the other one is taken.
        most = _mm512_mask_max_ps(most, seen(index), scaled(group), most);
    }
    let most = _mm512_reduce_max_ps(most);
    let max = if most > running.max { most } else { running.max };
    let mut total = _mm512_setzero_ps();
    let (to, _) = weights.as_chunks_mut::<LANES>();
    for (index, (group, to)) in groups.iter().zip(to).enumerate() {
        let weight = exp_of_seen(_mm512_sub_ps(scaled(group), _mm512_set1_ps(max)), seen(index));
        total = _mm512_add_ps(total, weight);
        // No weight is so small that this would take it for zero, but zero.
        let rounded = _mm512_cvtneps_pbh(weight);
        // SAFETY: both types have 256 bits, any of which are valid, and so many are in a group of weights.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), std::mem::transmute::<__m256bh, __m256i>(rounded)) };
    }
    running.take(max, _mm512_reduce_add_ps(total), sums);
}

/// The coefficients of `e^x`, those of the greatest power first. They are an array of constants, because a chain of iterators over
/// them is not unrolled: all of attention's weights took more than twice as long.
const COEFFICIENTS: [f32; 8] = {
    let [second, third, fourth, fifth, sixth, seventh] = FROM_SQUARE;
    [seventh, sixth, fifth, fourth, third, second, 1.0, 1.0]
};

/// `e^x` for `x` up to 0 in the lanes `seen`: exactly 1 for 0, 0 below -87, within 1 ulp elsewhere; NaN for NaN. 0 in
/// other lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")]
fn exp_of_seen(x: __m512, seen: __mmask16) -> __m512 {
    let seen = _mm512_mask_cmp_ps_mask::<_CMP_NLT_UQ>(seen, x, _mm512_set1_ps(LEAST));
    let shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E), _mm512_set1_ps(ROUND));
    let power = _mm512_sub_ps(shifted, _mm512_set1_ps(ROUND));
    let rest = _mm512_fnmadd_ps(power, _mm512_set1_ps(LN_2_HIGH), x);
    let rest = _mm512_fnmadd_ps(power, _mm512_set1_ps(LN_2_LOW), rest);
    let [greatest, others @ ..] = COEFFICIENTS;
    let mut sum = _mm512_set1_ps(greatest);
    for coefficient in others {
        sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(coefficient));
    }
    let power = _mm512_slli_epi32::<23>(_mm512_castps_si512(shifted));
    let power = _mm512_add_epi32(power, _mm512_set1_epi32(1.0_f32.to_bits().cast_signed()));
    _mm512_maskz_mul_ps(seen, sum, _mm512_castsi512_ps(power))
}
