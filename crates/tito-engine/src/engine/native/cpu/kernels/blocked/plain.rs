//! Vectors of blocks in plain Rust.

use super::{
    super::{LANES, vector::Plain},
    block::{LOWER, middle, widened},
    vectors::Widening,
};

/// So many numbers that lie there.
///
/// # Safety
/// There are so many.
#[inline(always)]
unsafe fn read<T: Copy, const N: usize>(from: *const u8) -> [T; N] {
    // SAFETY: the caller's promise, for types of which any bits are valid.
    unsafe { from.cast::<[T; N]>().read_unaligned() }
}

/// Rounded to the nearest bf16, the even one of two. What is none has zeros in the lower half.
#[inline(always)]
fn rounded(number: f32) -> f32 {
    let bits = number.to_bits();
    f32::from_bits(bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// The code at a place of a word, less what is taken off codes.
#[inline(always)]
fn code<const B: usize, const MINIMUM: bool>(word: u32, place: usize) -> i32 {
    if B == 8 {
        return (word << (24 - 8 * place)).cast_signed() >> 24;
    }
    let code = word >> (B * place) & (u32::MAX >> (32 - B));
    code.wrapping_sub(middle(B, MINIMUM).into()).cast_signed()
}

impl Widening for Plain {
    type Words = [u32; LANES];
    type Factors = [Self; 2];

    #[inline(always)]
    unsafe fn halves(from: *const u8) -> Self {
        // SAFETY: the caller has 16 half floats there.
        let halves: [u16; LANES] = unsafe { read(from) };
        let mut numbers = [0.0; LANES];
        for (number, half) in numbers.iter_mut().zip(halves) {
            *number = widened(half);
        }
        Self(numbers)
    }

    #[inline(always)]
    unsafe fn times_bytes(mut self, from: *const u8) -> Self {
        // SAFETY: the caller has 16 bytes there.
        let bytes: [i8; LANES] = unsafe { read(from) };
        for (number, byte) in self.0.iter_mut().zip(bytes) {
            *number *= f32::from(byte);
        }
        self
    }

    #[inline(always)]
    unsafe fn words<const B: usize>(step: *const u8) -> [[u32; LANES]; 2] {
        // SAFETY: the caller has a step of so many bits there.
        unsafe {
            let mut words: [[u32; LANES]; 2] = [read(step), [0; LANES]];
            let [first, second] = &mut words;
            match B {
                8 => *second = read(step.add(LOWER)),
                5 => {
                    let upper: [u8; LANES] = read(step.add(LOWER));
                    for ((first, second), upper) in first.iter_mut().zip(second).zip(upper) {
                        let lower = *first;
                        *first = lower & 0xffff | u32::from(upper) << 16;
                        *second = lower >> 16 | u32::from(upper >> 4) << 16;
                    }
                }
                6 => {
                    let upper: [u16; LANES] = read(step.add(LOWER));
                    for ((first, second), upper) in first.iter_mut().zip(second).zip(upper) {
                        let lower = *first;
                        *first = lower & 0xffff | u32::from(upper) << 16;
                        *second = lower >> 16 | u32::from(upper >> 8) << 16;
                    }
                }
                _ => {
                    for (first, second) in first.iter().zip(second) {
                        *second = *first >> 16;
                    }
                }
            }
            words
        }
    }

    #[inline(always)]
    unsafe fn factors<const B: usize>(scale: Self, minimum: Self) -> [Self; 2] {
        [scale, minimum]
    }

    #[inline(always)]
    unsafe fn numbers<const B: usize, const MINIMUM: bool>(
        words: [u32; LANES],
        place: usize,
        [scale, minimum]: &[Self; 2],
    ) -> Self {
        let mut numbers = [0.0; LANES];
        for (((number, scale), minimum), word) in numbers.iter_mut().zip(scale.0).zip(minimum.0).zip(words) {
            #[expect(clippy::cast_precision_loss, reason = "a code has at most 8 bits")]
            let code = code::<B, MINIMUM>(word, place) as f32;
            *number = if MINIMUM { code * scale + minimum } else { code * scale };
        }
        Self(numbers)
    }

    #[inline(always)]
    unsafe fn pairs(mut even: Self, mut odd: Self) -> (Self, Self) {
        for (even, odd) in even.0.iter_mut().zip(&mut odd.0) {
            (*even, *odd) = (rounded(*even), rounded(*odd));
        }
        (even, odd)
    }

    #[inline(always)]
    unsafe fn store_pairs((even, odd): (Self, Self), to: *mut u16) {
        let mut pairs = [0_u32; LANES];
        for ((pair, even), odd) in pairs.iter_mut().zip(even.0).zip(odd.0) {
            *pair = even.to_bits() >> 16 | odd.to_bits();
        }
        // SAFETY: the caller has room for 32 numbers of 16 bits there; the even ones come first in memory.
        unsafe { to.cast::<[u32; LANES]>().write_unaligned(pairs) }
    }

    #[inline(always)]
    unsafe fn fetch(_address: *const u8) {}
}
