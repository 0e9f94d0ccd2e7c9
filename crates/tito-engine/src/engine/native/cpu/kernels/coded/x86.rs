//! Codes to pairs of bf16 in vectors of 512 bits.
//!
//! For [tame](super::block::is_tame) blocks only: no code is NaN, and no product of a number and a scale is too small or
//! too large to be an ordinary number of bf16. Then these ways are exact where the plain one is, and round as it does.

use std::{
    arch::x86_64::{
        __m512, __m512bh, __m512i, _MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm512_add_epi32, _mm512_and_si512,
        _mm512_castps_si512, _mm512_castsi256_si512, _mm512_castsi512_si256, _mm512_cvtepi32_epi16,
        _mm512_cvtepu8_epi16, _mm512_cvtne2ps_pbh, _mm512_cvtph_ps, _mm512_extracti64x4_epi64, _mm512_inserti64x4,
        _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_add_epi16, _mm512_mul_ps, _mm512_or_si512,
        _mm512_permutexvar_epi16, _mm512_set1_epi16, _mm512_set1_epi32, _mm512_set1_ps, _mm512_slli_epi16,
        _mm512_srli_epi16, _mm512_srli_epi32, _mm512_storeu_si512, _mm512_test_epi16_mask,
    },
    mem::transmute,
};

use super::{
    super::{KernelName, KernelSet},
    block::{Block, STEP_BYTES, step},
};
use crate::engine::native::weights::Code;

/// How many bytes of codes ahead of those that are widened.
const AHEAD: usize = 4 << 10;

/// Widens a tame block, if this set of instructions has a way; says whether it has.
pub(super) fn widen(set: KernelSet, block: &Block<'_>, to: &mut [u16]) -> bool {
    let (name, to) = (set.name(), to.as_chunks_mut::<STEP_BYTES>().0);
    if !matches!(name, KernelName::Amx | KernelName::Avx512Bf16 | KernelName::Avx512) {
        return false;
    }
    // SAFETY: that there is a set of these names shows that the processor has its instructions.
    unsafe {
        match (block.code, name) {
            (Code::E4m3, KernelName::Avx512) => e4m3_plain(block, to),
            (Code::E4m3, _) => e4m3_bf16(block, to),
            (Code::E2m1, _) => e2m1(block, to),
        }
    }
    true
}

/// Calls `put` with the codes of each group, their scales, and where their numbers go.
#[inline(always)]
fn for_each_group(
    block: &Block<'_>,
    to: &mut [[u16; STEP_BYTES]],
    mut put: impl FnMut(&[[u8; STEP_BYTES]], [f32; STEP_BYTES], &mut [[u16; STEP_BYTES]]),
) {
    let (step, pairs) = (step(block.code), step(block.code) / 2);
    let mut rest = to;
    for (group, codes) in block.codes.chunks(block.group.div_ceil(step) * STEP_BYTES).enumerate() {
        let codes = codes.as_chunks::<STEP_BYTES>().0;
        let (own, others) = rest.split_at_mut(pairs * codes.len());
        put(codes, block.scales_of(group), own);
        rest = others;
    }
}

/// Has codes fetched from memory that are widened soon: the next ones of this block or of the one after it.
#[inline(always)]
fn fetch_ahead(codes: &[u8; STEP_BYTES]) {
    // SAFETY: a hint, which reads nothing.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(codes.as_ptr().wrapping_add(AHEAD).cast()) };
}

/// 32 codes as numbers of f16 that are 1/256 of theirs: the same bits, and another bias.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
fn halves(codes: &[u8; STEP_BYTES]) -> __m512i {
    // SAFETY: there are 32 bytes.
    let bytes = _mm512_cvtepu8_epi16(unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) });
    let size = _mm512_slli_epi16::<7>(_mm512_and_si512(bytes, _mm512_set1_epi16(0x7f)));
    let sign = _mm512_and_si512(_mm512_slli_epi16::<8>(bytes), _mm512_set1_epi16(i16::MIN));
    _mm512_or_si512(size, sign)
}

/// Both halves of 32 numbers of f16 times scales.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
fn scaled(numbers: __m512i, [low, high]: [__m512; 2]) -> [__m512; 2] {
    let (first, second) = (_mm512_castsi512_si256(numbers), _mm512_extracti64x4_epi64::<1>(numbers));
    [_mm512_mul_ps(_mm512_cvtph_ps(first), low), _mm512_mul_ps(_mm512_cvtph_ps(second), high)]
}

/// The scales of a step, times 256, which is exact for tame ones.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
fn scales(of: &[f32; STEP_BYTES]) -> [__m512; 2] {
    let times = _mm512_set1_ps(256.0);
    // SAFETY: there are 32 numbers.
    let [low, high] = unsafe { [_mm512_loadu_ps(of.as_ptr()), _mm512_loadu_ps(of.as_ptr().add(STEP_BYTES / 2))] };
    [_mm512_mul_ps(low, times), _mm512_mul_ps(high, times)]
}

/// Eight bits, where the processor rounds to bf16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")]
fn e4m3_bf16(block: &Block<'_>, to: &mut [[u16; STEP_BYTES]]) {
    for_each_group(block, to, |codes, of, to| {
        let scales = scales(&of);
        for (codes, to) in codes.iter().zip(to) {
            fetch_ahead(codes);
            let [low, high] = scaled(halves(codes), scales);
            // SAFETY: both types are 512 bits, and there are 32 numbers.
            unsafe {
                let rounded = transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
                _mm512_storeu_si512(to.as_mut_ptr().cast(), rounded);
            }
        }
    });
}

/// Eight bits, rounded to the nearest even by hand.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
fn e4m3_plain(block: &Block<'_>, to: &mut [[u16; STEP_BYTES]]) {
    for_each_group(block, to, |codes, of, to| {
        let scales = scales(&of);
        for (codes, to) in codes.iter().zip(to) {
            fetch_ahead(codes);
            let [low, high] = scaled(halves(codes), scales).map(|numbers| {
                let bits = _mm512_castps_si512(numbers);
                let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
                let half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd);
                _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(_mm512_add_epi32(bits, half)))
            });
            let both = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
            // SAFETY: there are 32 numbers.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), both) };
        }
    });
}

/// Four bits: a table has the numbers as bf16, and a power of two is added to the exponents of those that are not 0.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
fn e2m1(block: &Block<'_>, to: &mut [[u16; STEP_BYTES]]) {
    let bits = |number: f32| u16::try_from(number.to_bits() >> 16).unwrap_or_default();
    let table: [u16; STEP_BYTES] =
        std::array::from_fn(|code| bits(Code::E2m1.number(u8::try_from(code % 16).unwrap_or_default())));
    for_each_group(block, to, |codes, of, to| {
        // What a power of two adds to the bits of 1.
        let powers: [u16; STEP_BYTES] = of.map(|scale| bits(scale).wrapping_sub(bits(1.0)));
        // SAFETY: there are 32 numbers each.
        let (table, powers) =
            unsafe { (_mm512_loadu_si512(table.as_ptr().cast()), _mm512_loadu_si512(powers.as_ptr().cast())) };
        let half = _mm512_set1_epi16(0xf);
        for (codes, to) in codes.iter().zip(to.as_chunks_mut::<2>().0) {
            fetch_ahead(codes);
            // SAFETY: there are 32 bytes.
            let bytes = _mm512_cvtepu8_epi16(unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) });
            let both = [_mm512_and_si512(bytes, half), _mm512_srli_epi16::<4>(bytes)];
            for (codes, to) in both.into_iter().zip(to) {
                let numbers = _mm512_permutexvar_epi16(codes, table);
                let is_some = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(7));
                let numbers = _mm512_mask_add_epi16(numbers, is_some, numbers, powers);
                // SAFETY: there are 32 numbers.
                unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), numbers) };
            }
        }
    });
}
