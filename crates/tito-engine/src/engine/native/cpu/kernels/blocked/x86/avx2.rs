//! Blocks in two vectors of 256 bits: rows 0 to 7, and rows 8 to 15.

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _MM_HINT_T0, _mm_loadl_epi64, _mm_loadu_si128, _mm_prefetch, _mm256_add_epi32,
    _mm256_and_si256, _mm256_blend_epi16, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cmpeq_epi32,
    _mm256_cmpgt_epi32, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtepu16_epi32,
    _mm256_fmadd_ps, _mm256_loadu_si256, _mm256_mul_ps, _mm256_or_si256, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_setzero_si256, _mm256_slli_epi32, _mm256_sllv_epi32, _mm256_srli_epi32, _mm256_srlv_epi32,
    _mm256_storeu_si256, _mm256_sub_epi32,
};

use super::super::{
    super::{LANES, vector::x86::Avx2},
    block::{LOWER, middle},
    vectors::Widening,
};

/// What makes up for codes of eight bits at the upper end of their words: two to the power of -24.
const LESS: f32 = f32::from_bits((127 - 24) << 23);
/// Rows of a vector.
const ROWS: usize = LANES / 2;

impl Widening for Avx2 {
    type Words = [__m256i; 2];
    type Factors = [Self; 2];

    #[inline(always)]
    unsafe fn halves(from: *const u8) -> Self {
        // SAFETY: the caller has AVX2, and 16 half floats there.
        unsafe { Self(halves(from), halves(from.add(2 * ROWS))) }
    }

    #[inline(always)]
    unsafe fn times_bytes(self, from: *const u8) -> Self {
        // SAFETY: the caller has AVX2, and 16 bytes there.
        unsafe {
            let low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight(from)));
            let high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight(from.add(ROWS))));
            Self(_mm256_mul_ps(self.0, low), _mm256_mul_ps(self.1, high))
        }
    }

    #[inline(always)]
    unsafe fn words<const B: usize>(step: *const u8) -> [[__m256i; 2]; 2] {
        // SAFETY: the caller has AVX2, and a step of so many bits there.
        unsafe {
            let low = _mm256_loadu_si256(step.cast());
            let high = _mm256_loadu_si256(step.add(4 * ROWS).cast());
            let upper = step.add(LOWER);
            match B {
                8 => [[low, high], [_mm256_loadu_si256(upper.cast()), _mm256_loadu_si256(upper.add(4 * ROWS).cast())]],
                5 => {
                    let low = with_upper::<12>(low, _mm256_cvtepu8_epi32(eight(upper)));
                    let high = with_upper::<12>(high, _mm256_cvtepu8_epi32(eight(upper.add(ROWS))));
                    [[low[0], high[0]], [low[1], high[1]]]
                }
                6 => {
                    let low = with_upper::<8>(low, _mm256_cvtepu16_epi32(sixteen(upper)));
                    let high = with_upper::<8>(high, _mm256_cvtepu16_epi32(sixteen(upper.add(2 * ROWS))));
                    [[low[0], high[0]], [low[1], high[1]]]
                }
                _ => [[low, high], [_mm256_srli_epi32::<16>(low), _mm256_srli_epi32::<16>(high)]],
            }
        }
    }

    #[inline(always)]
    unsafe fn factors<const B: usize>(scale: Self, minimum: Self) -> [Self; 2] {
        if B < 8 {
            return [scale, minimum];
        }
        // SAFETY: the caller has AVX2.
        unsafe {
            let less = _mm256_set1_ps(LESS);
            [Self(_mm256_mul_ps(scale.0, less), _mm256_mul_ps(scale.1, less)), minimum]
        }
    }

    #[inline(always)]
    unsafe fn numbers<const B: usize, const MINIMUM: bool>(
        [low, high]: [__m256i; 2],
        place: usize,
        [scale, minimum]: &[Self; 2],
    ) -> Self {
        // SAFETY: the caller has AVX2 with fused sums.
        unsafe {
            let (low, high) = (codes::<B, MINIMUM>(low, place), codes::<B, MINIMUM>(high, place));
            if MINIMUM {
                Self(_mm256_fmadd_ps(low, scale.0, minimum.0), _mm256_fmadd_ps(high, scale.1, minimum.1))
            } else {
                Self(_mm256_mul_ps(low, scale.0), _mm256_mul_ps(high, scale.1))
            }
        }
    }

    #[inline(always)]
    unsafe fn pairs(even: Self, odd: Self) -> (Self, Self) {
        // SAFETY: the caller has AVX2.
        unsafe { (Self(rounded(even.0), rounded(even.1)), Self(rounded(odd.0), rounded(odd.1))) }
    }

    #[inline(always)]
    unsafe fn store_pairs((even, odd): (Self, Self), to: *mut u16) {
        // SAFETY: the caller has AVX2, and room for 32 numbers of 16 bits there.
        unsafe {
            _mm256_storeu_si256(to.cast(), side_by_side(even.0, odd.0));
            _mm256_storeu_si256(to.add(LANES).cast(), side_by_side(even.1, odd.1));
        }
    }

    #[inline(always)]
    unsafe fn fetch(address: *const u8) {
        // SAFETY: a hint, which reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
}

/// 8 bytes.
///
/// # Safety
/// There are so many.
#[inline(always)]
unsafe fn eight(from: *const u8) -> __m128i {
    // SAFETY: the caller's promise; every processor of this kind has the instruction.
    unsafe { _mm_loadl_epi64(from.cast()) }
}

/// 16 bytes.
///
/// # Safety
/// There are so many.
#[inline(always)]
unsafe fn sixteen(from: *const u8) -> __m128i {
    // SAFETY: as above.
    unsafe { _mm_loadu_si128(from.cast()) }
}

/// 8 half floats without the instructions for them, which a processor with AVX2 need not have: the bits are those of
/// numbers of f32 with another bias.
///
/// # Safety
/// There is AVX2, and so many there.
#[inline(always)]
unsafe fn halves(from: *const u8) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe {
        let halves = _mm256_cvtepu16_epi32(sixteen(from));
        let size = _mm256_and_si256(halves, _mm256_set1_epi32(0x7fff));
        let sign = _mm256_slli_epi32::<16>(_mm256_and_si256(halves, _mm256_set1_epi32(0x8000)));
        let is_none = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(0x7bff));
        let endless = _mm256_and_si256(is_none, _mm256_set1_epi32(0x7f80_0000));
        // Two to the power of 112, the difference between the biases.
        let bias = _mm256_castsi256_ps(_mm256_set1_epi32((127 + 112) << 23));
        let number = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32::<13>(size)), bias);
        _mm256_castsi256_ps(_mm256_or_si256(_mm256_or_si256(_mm256_castps_si256(number), sign), endless))
    }
}

/// Both words of 8 rows: the halves of `lower`, and what is above them, of which the second word's is `SHIFT` bits below its
/// place. What is above codes is left there.
///
/// # Safety
/// There is AVX2.
#[inline(always)]
unsafe fn with_upper<const SHIFT: i32>(lower: __m256i, upper: __m256i) -> [__m256i; 2] {
    /// The upper half of each word.
    const UPPER: i32 = 0b1010_1010;
    // SAFETY: the caller's promise.
    unsafe {
        let first = _mm256_blend_epi16::<UPPER>(lower, _mm256_slli_epi32::<16>(upper));
        let second = _mm256_blend_epi16::<UPPER>(_mm256_srli_epi32::<16>(lower), _mm256_slli_epi32::<SHIFT>(upper));
        [first, second]
    }
}

/// Codes as numbers. Those of eight bits stay at the upper end of their words, so that nothing moves their signs down: they
/// are two to the power of 24 times as large, and scales are as much smaller, without a loss for numbers of these sizes.
///
/// # Safety
/// There is AVX2.
#[inline(always)]
unsafe fn codes<const B: usize, const MINIMUM: bool>(words: __m256i, place: usize) -> __m256 {
    let by = i32::try_from(if B == 8 { 24 - 8 * place } else { B * place }).unwrap_or_default();
    // SAFETY: the caller's promise. Shifts by the same number everywhere are compiled to such.
    unsafe {
        let by = _mm256_set1_epi32(by);
        if B == 8 {
            let upper = _mm256_set1_epi32(0xff00_0000_u32.cast_signed());
            return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_sllv_epi32(words, by), upper));
        }
        let codes = _mm256_and_si256(_mm256_srlv_epi32(words, by), _mm256_set1_epi32((1 << B) - 1));
        _mm256_cvtepi32_ps(_mm256_sub_epi32(codes, _mm256_set1_epi32(middle(B, MINIMUM).into())))
    }
}

/// Rounded to the nearest bf16, the even one of two. What is none has zeros in the lower half.
///
/// # Safety
/// There is AVX2.
#[inline(always)]
unsafe fn rounded(numbers: __m256) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe {
        let bits = _mm256_castps_si256(numbers);
        // All bits, which is -1, where the last place is even. Shifts have fewer units than comparisons.
        let last = _mm256_and_si256(bits, _mm256_set1_epi32(0x1_0000));
        let even = _mm256_cmpeq_epi32(last, _mm256_setzero_si256());
        let nearest = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), even);
        _mm256_castsi256_ps(_mm256_and_si256(nearest, _mm256_set1_epi32(0xffff_0000_u32.cast_signed())))
    }
}

/// # Safety
/// There is AVX2.
#[inline(always)]
unsafe fn side_by_side(even: __m256, odd: __m256) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_or_si256(_mm256_srli_epi32::<16>(_mm256_castps_si256(even)), _mm256_castps_si256(odd)) }
}
