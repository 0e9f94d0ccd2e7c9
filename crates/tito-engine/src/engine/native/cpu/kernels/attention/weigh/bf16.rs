//! Weights in bf16 with vectors of 512 bits, which are half of the work of attention where tiles do the products.
//!
//! Fused operations, and no pass over the scores but two: what is masked and what is scaled is not written back. So the last

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, __mmask16, _CMP_NLT_UQ, _mm512_add_ps, _mm512_cvtne2ps_pbh, _mm512_fmadd_ps,
    _mm512_fmsub_ps, _mm512_loadu_ps, _mm512_mask_cmp_ps_mask, _mm512_mask_max_ps, _mm512_maskz_scalef_ps,
    _mm512_reduce_add_ps, _mm512_reduce_max_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_si512, _mm512_sub_ps,
};

use super::{
    super::super::{
        LANES,
        exp::{LEAST, ROUND},
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
    let scale = row.shape();
    let Scores { numbers: scores, sums, running, .. } = row;
    let mut most = _mm512_set1_ps(f32::NEG_INFINITY);
    for (index, group) in scores.as_chunks::<LANES>().0.iter().enumerate() {
        // Of a score that is no number, the other one is taken.
        most = _mm512_mask_max_ps(most, seen(index), loaded(group), most);
    }
    let most = _mm512_reduce_max_ps(most) * scale;
    let max = if most > running.max { most } else { running.max };
    let weigh = |group: &[f32; LANES], index| {
        exp_of_seen(_mm512_fmsub_ps(loaded(group), _mm512_set1_ps(scale), _mm512_set1_ps(max)), seen(index))
    };
    let mut total = _mm512_setzero_ps();
    let (pairs, _) = scores.as_chunks::<{ 2 * LANES }>();
    let (to, _) = weights.as_chunks_mut::<{ 2 * LANES }>();
    for (index, (pair, to)) in pairs.iter().zip(to).enumerate() {
        let ([first, second], _) = pair.as_chunks::<LANES>() else { unreachable!("a pair has two groups") };
        let (first, second) = (weigh(first, 2 * index), weigh(second, 2 * index + 1));
        total = _mm512_add_ps(total, _mm512_add_ps(first, second));
        // No weight is so small that this would take it for zero, but zero.
        let rounded = _mm512_cvtne2ps_pbh(second, first);
        // SAFETY: both types have 512 bits, any of which are valid, and so many are in a pair of groups of weights.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), std::mem::transmute::<__m512bh, __m512i>(rounded)) };
    }
    running.take(max, _mm512_reduce_add_ps(total), sums);
}

#[inline]
#[target_feature(enable = "avx512f")]
fn loaded(group: &[f32; LANES]) -> __m512 {
    // SAFETY: a group has 16 numbers.
    unsafe { _mm512_loadu_ps(group.as_ptr()) }
}

/// The coefficients of `2^x - 1`, from that of the fifth power down, with the least relative error of `2^x` on [-1/2, 1/2]: 1e-7,
/// where rounding to bf16 takes up to 4e-3. They are an array of constants, because a chain of iterators is not unrolled: all
/// of attention's weights took more than twice as long.
const OF_TWO_TO_THE: [f32; 5] = {
    // Some bits less than ln 2, with which the error would be twice as large.
    let first = f32::from_bits(0x3f31_7215);
    [0.001_326_472_7, 0.009_671_513, 0.055_507_336, 0.240_222_42, first]
};

/// `e^x` for `x` up to 0 in the lanes `seen`: exactly 1 for 0, 0 below -87, within 2e-6 of it elsewhere; NaN for NaN. 0 in
/// other lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")]
fn exp_of_seen(x: __m512, seen: __mmask16) -> __m512 {
    let seen = _mm512_mask_cmp_ps_mask::<_CMP_NLT_UQ>(seen, x, _mm512_set1_ps(LEAST));
    let shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E), _mm512_set1_ps(ROUND));
    let power = _mm512_sub_ps(shifted, _mm512_set1_ps(ROUND));
    let rest = _mm512_fmsub_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E), power);
    let [greatest, others @ ..] = OF_TWO_TO_THE;
    let mut sum = _mm512_set1_ps(greatest);
    for coefficient in others {
        sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(coefficient));
    }
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(1.0));
    _mm512_maskz_scalef_ps(seen, sum, power)
}
