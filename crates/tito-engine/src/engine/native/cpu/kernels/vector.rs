//! Vectors of 16 `f32`, as each instruction set has them.

use super::LANES;

/// What the matrix kernels need of an instruction set.
///
/// # Safety
/// All functions need the instructions of the set. Pointers are valid for 16 elements (32 for pairs) and need not be
/// aligned.
pub(super) trait Vector: Copy {
    /// 16 pairs of bf16 weights, made ready to be multiplied.
    type Pairs: Copy;

    /// 16 zeros.
    unsafe fn zero() -> Self;
    /// Reads 16 numbers.
    unsafe fn load(from: *const f32) -> Self;
    /// Writes 16 numbers.
    unsafe fn store(self, to: *mut f32);
    /// `self + other`.
    unsafe fn add(self, other: Self) -> Self;
    /// `self + scalar * weights`.
    unsafe fn multiply_add(self, scalar: f32, weights: Self) -> Self;
    /// Reads 16 pairs.
    unsafe fn load_pairs(from: *const u16) -> Self::Pairs;
    /// `self` plus, in each lane, the dot product of a pair of activations with the lane's pair of weights.
    unsafe fn dot_pairs(self, pair: u32, weights: Self::Pairs) -> Self;
}

/// The `f32` of a bf16 that is the low half of `pair`.
#[inline(always)]
pub(super) fn low(pair: u32) -> f32 {
    f32::from_bits(pair << 16)
}

/// The `f32` of a bf16 that is the high half of `pair`.
#[inline(always)]
pub(super) fn high(pair: u32) -> f32 {
    f32::from_bits(pair & 0xffff_0000)
}

/// Plain Rust.
#[derive(Clone, Copy)]
pub(super) struct Plain(pub(super) [f32; LANES]);

impl Vector for Plain {
    type Pairs = (Self, Self);

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.0; LANES])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller has 16 numbers there.
        Self(unsafe { from.cast::<[f32; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller has room for 16 numbers there.
        unsafe { to.cast::<[f32; LANES]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn add(mut self, other: Self) -> Self {
        for (lane, other) in self.0.iter_mut().zip(other.0) {
            *lane += other;
        }
        self
    }

    #[inline(always)]
    unsafe fn multiply_add(mut self, scalar: f32, weights: Self) -> Self {
        for (lane, weight) in self.0.iter_mut().zip(weights.0) {
            *lane += scalar * weight;
        }
        self
    }

    #[inline(always)]
    unsafe fn load_pairs(from: *const u16) -> Self::Pairs {
        // SAFETY: the caller has 32 numbers of 16 bits there; all bits are a `u32`.
        let pairs = unsafe { from.cast::<[u32; LANES]>().read_unaligned() };
        (Self(pairs.map(low)), Self(pairs.map(high)))
    }

    #[inline(always)]
    unsafe fn dot_pairs(mut self, pair: u32, (even, odd): Self::Pairs) -> Self {
        let (first, second) = (low(pair), high(pair));
        for ((lane, even), odd) in self.0.iter_mut().zip(even.0).zip(odd.0) {
            *lane += first * even;
            *lane += second * odd;
        }
        self
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    //! The vectors of x86-64.

    use std::arch::x86_64::{
        __m256, __m512, __m512bh, __m512i, _mm256_add_ps, _mm256_and_si256, _mm256_castsi256_ps, _mm256_fmadd_ps,
        _mm256_loadu_ps, _mm256_loadu_si256, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_slli_epi32,
        _mm256_storeu_ps, _mm512_add_ps, _mm512_and_si512, _mm512_castsi512_ps, _mm512_dpbf16_ps, _mm512_fmadd_ps,
        _mm512_loadu_ps, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32,
        _mm512_storeu_ps,
    };

    use super::{Vector, high, low};

    /// Two vectors of 256 bits.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2(pub(in super::super) __m256, pub(in super::super) __m256);

    /// A vector of 512 bits.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx512(pub(in super::super) __m512);

    /// A vector of 512 bits, with dot products of bf16 pairs.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx512Bf16(pub(in super::super) __m512);

    impl Vector for Avx2 {
        type Pairs = (Self, Self);

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller has AVX2.
            unsafe { Self(_mm256_setzero_ps(), _mm256_setzero_ps()) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller has AVX2, and 16 numbers there, wherever they begin.
            unsafe { Self(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the caller has AVX2, and room for 16 numbers there, wherever it begins.
            unsafe {
                _mm256_storeu_ps(to, self.0);
                _mm256_storeu_ps(to.add(8), self.1);
            }
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: the caller has AVX2.
            unsafe { Self(_mm256_add_ps(self.0, other.0), _mm256_add_ps(self.1, other.1)) }
        }

        #[inline(always)]
        unsafe fn multiply_add(self, scalar: f32, weights: Self) -> Self {
            // SAFETY: the caller has AVX2 and FMA.
            unsafe {
                let scalar = _mm256_set1_ps(scalar);
                Self(_mm256_fmadd_ps(scalar, weights.0, self.0), _mm256_fmadd_ps(scalar, weights.1, self.1))
            }
        }

        #[inline(always)]
        unsafe fn load_pairs(from: *const u16) -> Self::Pairs {
            // SAFETY: the caller has AVX2, and 32 numbers of 16 bits there, wherever they begin.
            unsafe {
                let mask = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
                let first = _mm256_loadu_si256(from.cast());
                let second = _mm256_loadu_si256(from.add(16).cast());
                let even = |pairs| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs));
                let odd = |pairs| _mm256_castsi256_ps(_mm256_and_si256(pairs, mask));
                (Self(even(first), even(second)), Self(odd(first), odd(second)))
            }
        }

        #[inline(always)]
        unsafe fn dot_pairs(self, pair: u32, (even, odd): Self::Pairs) -> Self {
            // SAFETY: the caller has the instructions of this type.
            unsafe { self.multiply_add(low(pair), even).multiply_add(high(pair), odd) }
        }
    }

    impl Vector for Avx512 {
        type Pairs = (Self, Self);

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller has AVX-512.
            unsafe { Self(_mm512_setzero_ps()) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller has AVX-512, and 16 numbers there, wherever they begin.
            unsafe { Self(_mm512_loadu_ps(from)) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the caller has AVX-512, and room for 16 numbers there, wherever it begins.
            unsafe { _mm512_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: the caller has AVX-512.
            unsafe { Self(_mm512_add_ps(self.0, other.0)) }
        }

        #[inline(always)]
        unsafe fn multiply_add(self, scalar: f32, weights: Self) -> Self {
            // SAFETY: the caller has AVX-512.
            unsafe { Self(_mm512_fmadd_ps(_mm512_set1_ps(scalar), weights.0, self.0)) }
        }

        #[inline(always)]
        unsafe fn load_pairs(from: *const u16) -> Self::Pairs {
            // SAFETY: the caller has AVX-512, and 32 numbers of 16 bits there, wherever they begin.
            unsafe {
                let pairs: __m512i = _mm512_loadu_si512(from.cast());
                let mask = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
                let even = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs));
                (Self(even), Self(_mm512_castsi512_ps(_mm512_and_si512(pairs, mask))))
            }
        }

        #[inline(always)]
        unsafe fn dot_pairs(self, pair: u32, (even, odd): Self::Pairs) -> Self {
            // SAFETY: the caller has the instructions of this type.
            unsafe { self.multiply_add(low(pair), even).multiply_add(high(pair), odd) }
        }
    }

    impl Vector for Avx512Bf16 {
        type Pairs = __m512i;

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller has AVX-512.
            unsafe { Self(_mm512_setzero_ps()) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller has AVX-512, and 16 numbers there, wherever they begin.
            unsafe { Self(_mm512_loadu_ps(from)) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the caller has AVX-512, and room for 16 numbers there, wherever it begins.
            unsafe { _mm512_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: the caller has AVX-512.
            unsafe { Self(_mm512_add_ps(self.0, other.0)) }
        }

        #[inline(always)]
        unsafe fn multiply_add(self, scalar: f32, weights: Self) -> Self {
            // SAFETY: the caller has AVX-512.
            unsafe { Self(_mm512_fmadd_ps(_mm512_set1_ps(scalar), weights.0, self.0)) }
        }

        #[inline(always)]
        unsafe fn load_pairs(from: *const u16) -> Self::Pairs {
            // SAFETY: the caller has AVX-512, and 32 numbers of 16 bits there, wherever they begin.
            unsafe { _mm512_loadu_si512(from.cast()) }
        }

        #[inline(always)]
        unsafe fn dot_pairs(self, pair: u32, weights: Self::Pairs) -> Self {
            // SAFETY: the caller has AVX-512 with dot products of bf16; both types are 512 bits, of which any are valid.
            unsafe {
                let pair: __m512bh = std::mem::transmute(_mm512_set1_epi32(pair.cast_signed()));
                Self(_mm512_dpbf16_ps(self.0, pair, std::mem::transmute::<__m512i, __m512bh>(weights)))
            }
        }
    }
}
