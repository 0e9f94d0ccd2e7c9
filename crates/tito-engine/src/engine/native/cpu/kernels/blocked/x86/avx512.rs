//! Blocks in vectors of 512 bits.

use std::{
    arch::x86_64::{
        __m512, __m512bh, __m512i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm256_loadu_si256, _mm512_add_epi32,
        _mm512_and_si512, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps,
        _mm512_cvtepu8_epi32, _mm512_cvtepu16_epi32, _mm512_cvtne2ps_pbh, _mm512_cvtph_ps, _mm512_fmadd_ps,
        _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_blend_epi16, _mm512_mul_ps, _mm512_or_si512,
        _mm512_permutex2var_ps, _mm512_permutexvar_epi16, _mm512_permutexvar_ps, _mm512_set1_epi32, _mm512_slli_epi32,
        _mm512_sllv_epi32, _mm512_srai_epi32, _mm512_srli_epi32, _mm512_srlv_epi32, _mm512_storeu_si512,
        _mm512_sub_epi32,
    },
    mem::transmute,
};

use super::super::{
    super::{
        LANES,
        vector::x86::{Avx512, Avx512Bf16},
    },
    block::{LOWER, middle},
    vectors::Widening,
};

/// What both sets of vectors have alike.
macro_rules! alike {
    () => {
        type Words = __m512i;
        type Factors = [Self; 2];

        #[inline(always)]
        unsafe fn halves(from: *const u8) -> Self {
            // SAFETY: the caller has AVX-512, and 16 half floats there.
            unsafe { Self(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))) }
        }

        #[inline(always)]
        unsafe fn times_bytes(self, from: *const u8) -> Self {
            // SAFETY: the caller has AVX-512, and 16 bytes there.
            unsafe {
                let bytes = _mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()));
                Self(_mm512_mul_ps(self.0, _mm512_cvtepi32_ps(bytes)))
            }
        }

        #[inline(always)]
        unsafe fn words<const B: usize>(step: *const u8) -> [__m512i; 2] {
            // SAFETY: the caller has AVX-512, and a step of so many bits there.
            unsafe { words::<B>(step) }
        }

        #[inline(always)]
        unsafe fn factors<const B: usize>(scale: Self, minimum: Self) -> [Self; 2] {
            [scale, minimum]
        }

        #[inline(always)]
        unsafe fn numbers<const B: usize, const MINIMUM: bool>(
            words: __m512i,
            place: usize,
            [scale, minimum]: &[Self; 2],
        ) -> Self {
            // SAFETY: the caller has AVX-512.
            unsafe {
                let codes = codes::<B, MINIMUM>(words, place);
                Self(if MINIMUM { _mm512_fmadd_ps(codes, scale.0, minimum.0) } else { _mm512_mul_ps(codes, scale.0) })
            }
        }

        #[inline(always)]
        unsafe fn fetch(address: *const u8) {
            // SAFETY: a hint, which reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
        }
    };
}

impl Widening for Avx512 {
    alike!();

    #[inline(always)]
    unsafe fn pairs(even: Self, odd: Self) -> (Self, Self) {
        // SAFETY: the caller has AVX-512.
        unsafe { (Self(rounded(even.0)), Self(rounded(odd.0))) }
    }

    #[inline(always)]
    unsafe fn store_pairs((even, odd): (Self, Self), to: *mut u16) {
        // SAFETY: the caller has AVX-512, and room for 32 numbers of 16 bits there.
        unsafe {
            let even = _mm512_srli_epi32::<16>(_mm512_castps_si512(even.0));
            _mm512_storeu_si512(to.cast(), _mm512_or_si512(even, _mm512_castps_si512(odd.0)));
        }
    }
}

impl Widening for Avx512Bf16 {
    alike!();

    #[inline(always)]
    unsafe fn pairs(even: Self, odd: Self) -> __m512i {
        /// Numbers of two vectors in turn.
        static IN_TURN: [u16; 2 * LANES] = [
            0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
            30, 15, 31,
        ];
        // SAFETY: the caller has AVX-512 with conversions to bf16; both types are 512 bits.
        unsafe {
            let both = transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(odd.0, even.0));
            _mm512_permutexvar_epi16(_mm512_loadu_si512(IN_TURN.as_ptr().cast()), both)
        }
    }

    #[inline(always)]
    unsafe fn store_pairs(pairs: __m512i, to: *mut u16) {
        // SAFETY: the caller has AVX-512, and room for 32 numbers of 16 bits there.
        unsafe { _mm512_storeu_si512(to.cast(), pairs) };
    }
}

/// # Safety
/// There is AVX-512, and a step of so many bits there.
#[inline(always)]
unsafe fn words<const B: usize>(step: *const u8) -> [__m512i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let (lower, upper) = (_mm512_loadu_si512(step.cast()), step.add(LOWER));
        match B {
            8 => [lower, _mm512_loadu_si512(upper.cast())],
            5 => {
                let upper = _mm512_cvtepu8_epi32(_mm_loadu_si128(upper.cast()));
                [
                    below(lower, _mm512_slli_epi32::<16>(upper)),
                    below(_mm512_srli_epi32::<16>(lower), _mm512_slli_epi32::<12>(upper)),
                ]
            }
            6 => {
                let upper = _mm512_cvtepu16_epi32(_mm256_loadu_si256(upper.cast()));
                [
                    below(lower, _mm512_slli_epi32::<16>(upper)),
                    below(_mm512_srli_epi32::<16>(lower), _mm512_slli_epi32::<8>(upper)),
                ]
            }
            _ => [lower, _mm512_srli_epi32::<16>(lower)],
        }
    }
}

/// The lower half of each word, and the upper one of another.
///
/// # Safety
/// There is AVX-512.
#[inline(always)]
unsafe fn below(lower: __m512i, upper: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_mask_blend_epi16(0xaaaa_aaaa, lower, upper) }
}

/// Codes of 4 bits as numbers, and in two tables those of 5 bits. Of an index, a table looks at the last bits.
static PLAIN: [f32; 2 * LANES] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0, 18.0, 19.0, 20.0,
    21.0, 22.0, 23.0, 24.0, 25.0, 26.0, 27.0, 28.0, 29.0, 30.0, 31.0,
];
/// The same less 16; the middle has codes of 4 bits less 8.
static LESS: [f32; 2 * LANES] = [
    -16.0, -15.0, -14.0, -13.0, -12.0, -11.0, -10.0, -9.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0,
    2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
];

/// # Safety
/// There is AVX-512.
#[inline(always)]
unsafe fn codes<const B: usize, const MINIMUM: bool>(words: __m512i, place: usize) -> __m512 {
    let above = i32::try_from(32 - B * (place + 1)).unwrap_or_default();
    let below = i32::try_from(B * place).unwrap_or_default();
    // SAFETY: the caller's promise. Shifts by the same number everywhere are compiled to such.
    unsafe {
        let at_the_end = _mm512_srlv_epi32(words, _mm512_set1_epi32(below));
        match B {
            4 => {
                let table = if MINIMUM { PLAIN.as_ptr() } else { LESS.as_ptr().add(LANES / 2) };
                _mm512_permutexvar_ps(at_the_end, _mm512_loadu_ps(table))
            }
            5 => {
                let table = if MINIMUM { PLAIN.as_ptr() } else { LESS.as_ptr() };
                _mm512_permutex2var_ps(_mm512_loadu_ps(table), at_the_end, _mm512_loadu_ps(table.add(LANES)))
            }
            8 => {
                let above = _mm512_sllv_epi32(words, _mm512_set1_epi32(above));
                _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(above))
            }
            _ => {
                let codes = _mm512_and_si512(at_the_end, _mm512_set1_epi32((1 << B) - 1));
                _mm512_cvtepi32_ps(_mm512_sub_epi32(codes, _mm512_set1_epi32(middle(B, MINIMUM).into())))
            }
        }
    }
}

/// Rounded to the nearest bf16, the even one of two. What is none has zeros in the lower half.
///
/// # Safety
/// There is AVX-512.
#[inline(always)]
unsafe fn rounded(numbers: __m512) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe {
        let bits = _mm512_castps_si512(numbers);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd);
        let upper = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
        _mm512_castsi512_ps(_mm512_and_si512(_mm512_add_epi32(bits, half), upper))
    }
}
