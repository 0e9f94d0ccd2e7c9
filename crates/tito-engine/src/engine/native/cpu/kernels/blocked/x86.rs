//! Blocks to pairs of bf16 in vectors of 512 bits.
//!
//! A number that is not 0 is a multiple of the least half float, so that none is too small for the processor's own way to
//! round. A product of a code and a scale is exact, so that it may be fused with the sum.
//!
//! Arrays are written out instead of mapped: what is compiled apart, as a closure in `map` may be, lacks the instructions, and then
//! calls a function for each of them.

use std::{
    arch::x86_64::{
        __m128i, __m256i, __m512, __m512bh, __m512i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm256_loadu_si256,
        _mm512_add_epi32, _mm512_and_si512, _mm512_castps_si512, _mm512_castsi256_si512, _mm512_cvtepi8_epi32,
        _mm512_cvtepi32_epi16, _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32, _mm512_cvtne2ps_pbh, _mm512_cvtph_ps,
        _mm512_fmadd_ps, _mm512_inserti64x4, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_add_ps, _mm512_mul_ps,
        _mm512_permutexvar_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_srli_epi32, _mm512_storeu_si512,
    },
    mem::transmute,
};

use super::{
    super::{KernelName, KernelSet, LANES},
    block::{BITS, Block, HALVES, Layout, PAIR, step_bytes},
};

/// How many bytes ahead of those that are widened are fetched from memory.
const AHEAD: usize = 4 << 10;

/// Widens a block, if this set of instructions has a way; says whether it has.
pub(super) fn widen(set: KernelSet, block: &Block<'_>, to: &mut [u16]) -> bool {
    // SAFETY: that there is a set of these names shows that the processor has its instructions.
    unsafe {
        match set.name() {
            KernelName::Amx | KernelName::Avx512Bf16 => with_bf16(block, to),
            KernelName::Avx512 => without_bf16(block, to),
            KernelName::Avx2 | KernelName::Portable => return false,
        }
    }
    true
}

/// Where the processor rounds to bf16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")]
fn with_bf16(block: &Block<'_>, to: &mut [u16]) {
    // SAFETY: this function is compiled for the instructions; both types are 512 bits.
    unsafe { of_any(block, to, |[low, high]| transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low))) };
}

/// Rounded to the nearest even by hand.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
fn without_bf16(block: &Block<'_>, to: &mut [u16]) {
    // SAFETY: this function is compiled for the instructions.
    unsafe {
        of_any(block, to, |both| {
            let (low, high) = (to_nearest_even(both[0]), to_nearest_even(both[1]));
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
        });
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
#[inline]
fn to_nearest_even(numbers: __m512) -> __m256i {
    let bits = _mm512_castps_si512(numbers);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd);
    _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(_mm512_add_epi32(bits, half)))
}

/// # Safety
/// The caller is compiled for the instructions of vectors of 512 bits.
#[inline(always)]
unsafe fn of_any(block: &Block<'_>, to: &mut [u16], round: impl Fn([__m512; 2]) -> __m512i) {
    // SAFETY: the caller's promise.
    unsafe {
        match block.layout.format.bits {
            4 => of_bits::<4>(block, to, round),
            5 => of_bits::<5>(block, to, round),
            6 => of_bits::<6>(block, to, round),
            _ => of_bits::<8>(block, to, round),
        }
    }
}

/// # Safety
/// As of [`of_any`].
#[inline(always)]
unsafe fn of_bits<const B: usize>(block: &Block<'_>, to: &mut [u16], round: impl Fn([__m512; 2]) -> __m512i) {
    let layout = &block.layout;
    let mut table = [0.0; LANES];
    for (code, number) in (0_u8..).zip(&mut table) {
        *number = f32::from(code) - f32::from(layout.format.offset);
    }
    let mut to = to.as_chunks_mut::<PAIR>().0.iter_mut();
    // SAFETY: the caller has the instructions, and there are 16 numbers in the table, and 32 where a pair goes to.
    unsafe {
        let table = _mm512_loadu_ps(table.as_ptr());
        for piece in block.bytes.chunks_exact(layout.piece_bytes) {
            for group in 0..layout.format.groups() {
                let scales = twice(scales(layout, piece, group));
                let minima =
                    if layout.format.has_minimum { minima(layout, piece, group) } else { _mm512_set1_ps(-0.0) };
                let minima = twice(minima);
                for step in layout.steps(piece, group).chunks_exact(step_bytes(B)) {
                    _mm_prefetch::<_MM_HINT_T0>(step.as_ptr().wrapping_add(AHEAD).cast());
                    for (codes, to) in codes::<B>(step, table).into_iter().zip(to.by_ref()) {
                        let [low, high] = codes;
                        let low = _mm512_fmadd_ps(low, scales[0], minima[0]);
                        let high = _mm512_fmadd_ps(high, scales[1], minima[1]);
                        _mm512_storeu_si512(to.as_mut_ptr().cast(), round([low, high]));
                    }
                }
            }
        }
    }
}

/// The codes of both pairs of a step, in two vectors each.
///
/// # Safety
/// As of [`of_any`].
#[inline(always)]
unsafe fn codes<const B: usize>(step: &[u8], table: __m512) -> [[__m512; 2]; 2] {
    // SAFETY: the caller has the instructions.
    unsafe {
        if B == 8 {
            return [[whole(step, 0), whole(step, LANES)], [whole(step, PAIR), whole(step, PAIR + LANES)]];
        }
        let (low, high) = (_mm512_cvtepu8_epi32(bytes(step, 0)), _mm512_cvtepu8_epi32(bytes(step, LANES)));
        let mut codes = [
            // Of an index, a table of 16 looks at the last four bits.
            [_mm512_permutexvar_ps(low, table), _mm512_permutexvar_ps(high, table)],
            [
                _mm512_permutexvar_ps(_mm512_srli_epi32::<4>(low), table),
                _mm512_permutexvar_ps(_mm512_srli_epi32::<4>(high), table),
            ],
        ];
        for further in 0..B - 4 {
            let worth = _mm512_set1_ps(if further == 0 { 16.0 } else { 32.0 });
            for (part, codes) in codes.as_flattened_mut().iter_mut().enumerate() {
                let at = HALVES + further * BITS + 2 * part;
                let are_set = u16::from_le_bytes([step[at], step[at + 1]]);
                *codes = _mm512_mask_add_ps(*codes, are_set, *codes, worth);
            }
        }
        codes
    }
}

/// 16 bytes of a step.
///
/// # Safety
/// As of [`of_any`].
#[inline(always)]
unsafe fn bytes(step: &[u8], at: usize) -> __m128i {
    let bytes: &[u8; LANES] = step[at..].first_chunk().expect("a whole step");
    // SAFETY: there are 16 bytes.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// 16 codes of a byte each.
///
/// # Safety
/// As of [`of_any`].
#[inline(always)]
unsafe fn whole(step: &[u8], at: usize) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes(step, at))) }
}

/// # Safety
/// As of [`of_any`].
#[inline(always)]
unsafe fn scales(layout: &Layout, piece: &[u8], group: usize) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { of_kind(layout, piece, 0, group) }
}

/// # Safety
/// As of [`of_any`].
#[inline(always)]
unsafe fn minima(layout: &Layout, piece: &[u8], group: usize) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { of_kind(layout, piece, 1, group) }
}

/// The scales or the minima of all rows.
///
/// # Safety
/// As of [`of_any`].
#[inline(always)]
unsafe fn of_kind(layout: &Layout, piece: &[u8], kind: usize, group: usize) -> __m512 {
    let large: &[u8; 2 * LANES] = piece[kind * 2 * LANES..].first_chunk().expect("a whole piece");
    // SAFETY: the caller has the instructions; there are 16 half floats and 16 integers.
    unsafe {
        let large = _mm512_cvtph_ps(_mm256_loadu_si256(large.as_ptr().cast()));
        match layout.small(piece, kind, group) {
            Some(small) => {
                let small = _mm512_cvtepi8_epi32(_mm_loadu_si128(small.as_ptr().cast()));
                _mm512_mul_ps(large, _mm512_cvtepi32_ps(small))
            }
            None => large,
        }
    }
}

/// Each number twice, as the codes of a pair are.
///
/// # Safety
/// As of [`of_any`].
#[inline(always)]
unsafe fn twice(of: __m512) -> [__m512; 2] {
    // No constant, which each call would copy.
    static PLACES: [u32; PAIR] =
        [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15];
    // SAFETY: the caller has the instructions; there are 32 places.
    unsafe {
        let (low, high) =
            (_mm512_loadu_si512(PLACES.as_ptr().cast()), _mm512_loadu_si512(PLACES[LANES..].as_ptr().cast()));
        [_mm512_permutexvar_ps(low, of), _mm512_permutexvar_ps(high, of)]
    }
}
