//! Codes to pairs of bf16 in vectors of 512 bits: into memory, or to be multiplied with few rows at once.
//!
//! For [tame](super::block::is_tame) blocks only: no code is NaN, and no product of a number and a scale is too small or
//! too large to be an ordinary number of bf16. Then these ways are exact where the plain one is, and round as it does.
//!
//! Arrays are written out instead of mapped: what is compiled apart, as a closure in `map` may be, lacks the instructions, and
//! then calls a function for each of them.

use std::{
    arch::x86_64::{
        __m512, __m512bh, __m512i, _MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm512_add_epi32, _mm512_and_si512,
        _mm512_castps_si512, _mm512_castsi256_si512, _mm512_castsi512_ps, _mm512_castsi512_si256,
        _mm512_cvtepi32_epi16, _mm512_cvtepu8_epi16, _mm512_cvtepu16_epi32, _mm512_cvtne2ps_pbh, _mm512_cvtph_ps,
        _mm512_extracti64x4_epi64, _mm512_inserti64x4, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_add_epi16,
        _mm512_mul_ps, _mm512_or_si512, _mm512_permutexvar_epi16, _mm512_permutexvar_ps, _mm512_set1_epi16,
        _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_si512, _mm512_slli_epi16, _mm512_slli_epi32,
        _mm512_srli_epi16, _mm512_srli_epi32, _mm512_storeu_si512, _mm512_sub_epi16, _mm512_test_epi16_mask,
    },
    marker::PhantomData,
    mem::transmute,
};

use super::{
    super::{
        KernelName, KernelSet, LANES,
        few::{FewRows, FewVector, SideBySide, Sink},
        pages::Slice,
        vector::x86::{Avx512, Avx512Bf16},
    },
    block::{Blocks, STEP_BYTES, step},
};
/// How many bytes of codes ahead of those that are widened are fetched from memory.
const AHEAD: usize = 4 << 10;

/// Whether this set of instructions has a way.
pub(super) fn has(set: KernelSet) -> bool {
    matches!(set.name(), KernelName::Amx | KernelName::Avx512Bf16 | KernelName::Avx512)
}

/// Widens a tame block, if this set of instructions has a way; says whether it has.
pub(super) fn widen(set: KernelSet, block: &Blocks<'_>, to: &mut [u16]) -> bool {
    assert_eq!((block.count(), to.len()), (1, block.depth * LANES), "room for all numbers of one block");
    if has(set) {
        // SAFETY: there is room, as was said.
        unsafe { run(set, block, IntoMemory { to: to.as_mut_ptr() }) };
    }
    has(set)
}

/// Multiplies tame blocks with few rows.
///
/// # Panics
/// If the set [has] no way.
///
/// # Safety
/// There is room for the products.
pub(super) unsafe fn times_few(set: KernelSet, blocks: &Blocks<'_>, rows: FewRows<'_>) {
    // SAFETY: the caller's promise.
    unsafe { run(set, blocks, rows) }
}

/// What is done with blocks.
trait Work {
    /// Does it.
    ///
    /// # Safety
    /// The instructions of `V` and `D` are there, and whatever the work asks for.
    unsafe fn run<V: Pairs, D: Decoder<P>, const P: usize>(self, blocks: &Tame<'_, D, P>);
}

/// Numbers go to memory, where there is room for all of them.
struct IntoMemory {
    to: *mut u16,
}

impl Work for IntoMemory {
    #[inline(always)]
    unsafe fn run<V: Pairs, D: Decoder<P>, const P: usize>(self, blocks: &Tame<'_, D, P>) {
        let mut memory = Memory { to: self.to };
        // SAFETY: the caller's promise; bits are pairs of `Avx512Bf16`, of which nothing else is asked.
        unsafe { SideBySide::<Avx512Bf16>::widen::<_, 1>(blocks, 0, &mut memory) };
    }
}

impl Work for FewRows<'_> {
    #[inline(always)]
    unsafe fn run<V: Pairs, D: Decoder<P>, const P: usize>(self, blocks: &Tame<'_, D, P>) {
        // SAFETY: the caller's promises.
        unsafe { self.times::<V>(blocks) };
    }
}

/// Does work on blocks.
///
/// # Panics
/// If the set [has] no way.
///
/// # Safety
/// There is what the work asks for.
unsafe fn run(set: KernelSet, blocks: &Blocks<'_>, work: impl Work) {
    // SAFETY: that there is a set of these names shows that the processor has its instructions; where there are tiles, there
    // are those of the next set.
    unsafe {
        match set.name() {
            KernelName::Amx | KernelName::Avx512Bf16 => avx512_bf16(blocks, work),
            KernelName::Avx512 => avx512(blocks, work),
            name => unreachable!("{name} has no way"),
        }
    }
}

/// # Safety
/// The processor has AVX-512 with dot products of bf16, and there is what the work asks for.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")]
unsafe fn avx512_bf16(blocks: &Blocks<'_>, work: impl Work) {
    // SAFETY: this function is compiled for the instructions.
    unsafe {
        match blocks.scales {
            Slice::F32(scales) => work.run::<Avx512Bf16, E4m3, 1>(&Tame::new(blocks, scales)),
            Slice::Bf16(scales) => work.run::<Avx512Bf16, E2m1, 2>(&Tame::new(blocks, scales)),
        }
    }
}

/// # Safety
/// The processor has AVX-512, and there is what the work asks for.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
unsafe fn avx512(blocks: &Blocks<'_>, work: impl Work) {
    // SAFETY: as above.
    unsafe {
        match blocks.scales {
            Slice::F32(scales) => work.run::<Avx512, E4m3ByHand, 1>(&Tame::new(blocks, scales)),
            Slice::Bf16(scales) => work.run::<Avx512, E2m1, 2>(&Tame::new(blocks, scales)),
        }
    }
}

/// Vectors that 16 pairs of bf16 are made ready for.
trait Pairs: FewVector {
    /// # Safety
    /// The instructions of the vectors are there.
    unsafe fn pairs(bits: __m512i) -> Self::Pairs;
}

impl Pairs for Avx512Bf16 {
    #[inline(always)]
    unsafe fn pairs(bits: __m512i) -> __m512i {
        bits
    }
}

impl Pairs for Avx512 {
    #[inline(always)]
    unsafe fn pairs(bits: __m512i) -> (Self, Self) {
        // SAFETY: the caller has AVX-512.
        unsafe {
            let even = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits));
            let upper = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
            (Self(even), Self(_mm512_castsi512_ps(_mm512_and_si512(bits, upper))))
        }
    }
}

/// A kind of codes, of which a step has `P` times 16 pairs.
///
/// # Safety
/// All functions need AVX-512, [`E4m3`] with conversions to bf16.
trait Decoder<const P: usize> {
    /// The type of scales.
    type Scale;
    /// The scales of a group, ready to be used.
    type Scales: Copy;

    /// Reads 16 scales.
    unsafe fn scales(from: *const Self::Scale) -> Self::Scales;
    /// The numbers of the [`STEP_BYTES`] codes there.
    unsafe fn pairs(codes: *const u8, scales: Self::Scales) -> [__m512i; P];
}

/// Tame blocks that follow each other, whose codes are read in one way.
struct Tame<'a, D: Decoder<P>, const P: usize> {
    codes: &'a [u8],
    scales: &'a [D::Scale],
    /// Of one block.
    block_bytes: usize,
    block_scales: usize,
    /// Inputs of a block.
    depth: usize,
    /// Steps that share a scale; the last ones may be fewer.
    group_steps: usize,
    decoder: PhantomData<D>,
}

impl<'a, D: Decoder<P>, const P: usize> Tame<'a, D, P> {
    fn new(blocks: &Blocks<'a>, scales: &'a [D::Scale]) -> Self {
        let (block_bytes, block_scales) = (blocks.block_bytes(), blocks.block_scales());
        let count = blocks.codes.len() / block_bytes;
        assert!(scales.len() >= count * block_scales && step(blocks.code) == 2 * P, "scales and codes of all blocks");
        Self {
            codes: blocks.codes,
            scales,
            block_bytes,
            block_scales,
            depth: blocks.depth,
            group_steps: blocks.group.div_ceil(2 * P),
            decoder: PhantomData,
        }
    }
}

impl<V: Pairs, D: Decoder<P>, const P: usize> SideBySide<V> for Tame<'_, D, P> {
    fn count(&self) -> usize {
        self.codes.len() / self.block_bytes
    }

    fn inputs(&self) -> usize {
        self.depth
    }

    #[cfg_attr(not(unoptimised), inline(always))]
    unsafe fn widen<S: Sink<V>, const BLOCKS: usize>(&self, first: usize, sink: &mut S) {
        let (steps, mut step, mut group) = (self.block_bytes / STEP_BYTES, 0, 0);
        // SAFETY: the caller has the instructions and so many blocks; each has a scale for each group and output.
        unsafe {
            let codes = self.codes.as_ptr().add(first * self.block_bytes);
            let scales_of = |block: usize, group: usize| {
                D::scales(self.scales.as_ptr().add((first + block) * self.block_scales + group * LANES))
            };
            while step < steps {
                let mut scales = [scales_of(0, group); BLOCKS];
                for (block, scales) in scales.iter_mut().enumerate() {
                    *scales = scales_of(block, group);
                }
                let end = steps.min(step + self.group_steps);
                while step < end {
                    let mut numbers = [[_mm512_setzero_si512(); P]; BLOCKS];
                    for (block, numbers) in numbers.iter_mut().enumerate() {
                        let at = codes.add(block * self.block_bytes + step * STEP_BYTES);
                        _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD).cast());
                        *numbers = D::pairs(at, scales[block]);
                    }
                    for pair in 0..P {
                        for (block, numbers) in numbers.iter().enumerate() {
                            sink.put(block, V::pairs(numbers[pair]));
                        }
                        sink.go_on();
                    }
                    step += 1;
                }
                group += 1;
            }
        }
    }
}

/// Memory for the numbers of one block.
struct Memory {
    to: *mut u16,
}

impl Sink<Avx512Bf16> for Memory {
    #[inline(always)]
    unsafe fn put(&mut self, _block: usize, pairs: __m512i) {
        // SAFETY: the caller's promise, and whoever made this has room for all pairs.
        unsafe { _mm512_storeu_si512(self.to.cast(), pairs) };
    }

    #[inline(always)]
    unsafe fn go_on(&mut self) {
        // SAFETY: as above.
        self.to = unsafe { self.to.add(2 * LANES) };
    }
}

/// Eight bits, where the processor rounds to bf16.
struct E4m3;

impl Decoder<1> for E4m3 {
    type Scale = f32;
    type Scales = [__m512; 2];

    #[inline(always)]
    unsafe fn scales(from: *const f32) -> [__m512; 2] {
        // SAFETY: the caller's promise.
        unsafe { scales_of_pairs(from) }
    }

    #[inline(always)]
    unsafe fn pairs(codes: *const u8, scales: [__m512; 2]) -> [__m512i; 1] {
        // SAFETY: the caller has the instructions; both types are 512 bits.
        unsafe {
            let [low, high] = scaled(codes, scales);
            [transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low))]
        }
    }
}

/// Eight bits, rounded to the nearest even by hand.
struct E4m3ByHand;

impl Decoder<1> for E4m3ByHand {
    type Scale = f32;
    type Scales = [__m512; 2];

    #[inline(always)]
    unsafe fn scales(from: *const f32) -> [__m512; 2] {
        // SAFETY: the caller's promise.
        unsafe { scales_of_pairs(from) }
    }

    #[inline(always)]
    unsafe fn pairs(codes: *const u8, scales: [__m512; 2]) -> [__m512i; 1] {
        // SAFETY: the caller has the instructions.
        unsafe {
            let [low, high] = scaled(codes, scales);
            let (low, high) = (_mm512_cvtepi32_epi16(rounded(low)), _mm512_cvtepi32_epi16(rounded(high)));
            [_mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)]
        }
    }
}

/// The scales of 16 outputs, twice each as a step has their codes, times 256, which is exact for tame ones.
///
/// # Safety
/// There is AVX-512, and 16 numbers there.
#[inline(always)]
unsafe fn scales_of_pairs(from: *const f32) -> [__m512; 2] {
    static TWICE: [u32; 2 * LANES] =
        [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15];
    // SAFETY: the caller's promise.
    unsafe {
        let scales = _mm512_mul_ps(_mm512_loadu_ps(from), _mm512_set1_ps(256.0));
        let [low, high] =
            [_mm512_loadu_si512(TWICE.as_ptr().cast()), _mm512_loadu_si512(TWICE[LANES..].as_ptr().cast())];
        [_mm512_permutexvar_ps(low, scales), _mm512_permutexvar_ps(high, scales)]
    }
}

/// 32 codes as numbers times scales: the bits of a code are those of a number of f16 that is 1/256 of its.
///
/// # Safety
/// There is AVX-512, and 32 codes there.
#[inline(always)]
unsafe fn scaled(codes: *const u8, [low, high]: [__m512; 2]) -> [__m512; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let bytes = _mm512_cvtepu8_epi16(_mm256_loadu_si256(codes.cast()));
        let size = _mm512_slli_epi16::<7>(_mm512_and_si512(bytes, _mm512_set1_epi16(0x7f)));
        let sign = _mm512_and_si512(_mm512_slli_epi16::<8>(bytes), _mm512_set1_epi16(i16::MIN));
        let halves = _mm512_or_si512(size, sign);
        let (first, second) = (_mm512_castsi512_si256(halves), _mm512_extracti64x4_epi64::<1>(halves));
        [_mm512_mul_ps(_mm512_cvtph_ps(first), low), _mm512_mul_ps(_mm512_cvtph_ps(second), high)]
    }
}

/// The bits of the nearest bf16, the even one of two, below 16 zeros.
///
/// # Safety
/// There is AVX-512.
#[inline(always)]
unsafe fn rounded(numbers: __m512) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let bits = _mm512_castps_si512(numbers);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd);
        _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, half))
    }
}

/// Four bits: a table has the numbers as bf16, and a power of two is added to the exponents of those that are not 0.
struct E2m1;

/// The numbers of all codes, twice.
static E2M1: [u16; 2 * LANES] = {
    const ONE: u16 = 0x3f80;
    const SIZES: [u16; 8] = [0, 0x3f00, ONE, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0];
    let mut table = [0; 2 * LANES];
    let mut code = 0;
    while code < table.len() {
        table[code] = SIZES[code % 8] | if code % LANES < 8 { 0 } else { 0x8000 };
        code += 1;
    }
    table
};

impl Decoder<2> for E2m1 {
    type Scale = u16;
    /// What powers of two add to the bits of 1.
    type Scales = __m512i;

    #[inline(always)]
    unsafe fn scales(from: *const u16) -> __m512i {
        // SAFETY: the caller has the instructions, and 16 numbers there.
        unsafe {
            let scales = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            let twice = _mm512_or_si512(scales, _mm512_slli_epi32::<16>(scales));
            _mm512_sub_epi16(twice, _mm512_set1_epi16(0x3f80))
        }
    }

    #[inline(always)]
    unsafe fn pairs(codes: *const u8, powers: __m512i) -> [__m512i; 2] {
        // SAFETY: the caller has the instructions, and 32 bytes there.
        unsafe {
            let bytes = _mm512_cvtepu8_epi16(_mm256_loadu_si256(codes.cast()));
            [with_power(bytes, powers), with_power(_mm512_srli_epi16::<4>(bytes), powers)]
        }
    }
}

/// The numbers of the codes in the lowest four bits, times powers of two.
///
/// # Safety
/// There is AVX-512.
#[inline(always)]
unsafe fn with_power(codes: __m512i, powers: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        // Of an index, the last five bits count, and the table has all codes twice.
        let numbers = _mm512_permutexvar_epi16(codes, _mm512_loadu_si512(E2M1.as_ptr().cast()));
        let is_some = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(7));
        _mm512_mask_add_epi16(numbers, is_some, numbers, powers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::native::weights::Code;

    #[test]
    fn the_table_has_the_numbers_of_all_codes() {
        for (code, bits) in (0..32).zip(E2M1) {
            let number = f32::from_bits(u32::from(bits) << 16);
            assert_eq!(number.to_bits(), Code::E2m1.number(code % 16).to_bits(), "{code}");
        }
    }
}
