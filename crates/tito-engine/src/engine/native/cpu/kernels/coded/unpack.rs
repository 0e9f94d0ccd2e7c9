//! The numbers that the codes of a block stand for.

use std::ops::Range;

use super::{
    super::{KernelSet, LANES, instructions::Vectorized, packed::rounded, pages::Stored},
    block::{Blocks, STEP_BYTES, step},
};
use crate::engine::native::weights::Code;

/// Widens all of a block into a part of a panel.
pub(super) fn widen(set: KernelSet, block: Blocks<'_>, panel: &mut Stored, part: Range<usize>) {
    match panel {
        Stored::Bf16(numbers) => {
            #[cfg(target_arch = "x86_64")]
            if block.is_tame && super::x86::widen(set, &block, &mut numbers[part.clone()]) {
                return;
            }
            set.vectorize(ToBf16 { block, to: &mut numbers[part] });
        }
        Stored::F32(numbers) => set.vectorize(ToF32 { block, to: &mut numbers[part] }),
    }
}

/// The number of eight bits, without a table: the bits are those of a number of f32 with another bias. The least ones, whose
/// exponent is zero, have no leading one, which is taken off again.
#[inline(always)]
fn e4m3(code: u8) -> f32 {
    const TINY: f32 = 1.0 / 64.0;
    let (sign, size) = (u32::from(code & 0x80) << 24, u32::from(code & 0x7f));
    let is_tiny = size < 8;
    let size =
        if size == 0x7f { f32::NAN.to_bits() } else { (size << 20) + if is_tiny { 121 << 23 } else { 120 << 23 } };
    let number = f32::from_bits(size) - if is_tiny { TINY } else { 0.0 };
    f32::from_bits(number.to_bits() | sign)
}

/// The number of the lower four bits, likewise.
#[inline(always)]
fn e2m1(code: u8) -> f32 {
    let (sign, size) = (u32::from(code & 8) << 28, u32::from(code & 7));
    let is_tiny = size < 2;
    let number = f32::from_bits((size << 22) + if is_tiny { 127 << 23 } else { 126 << 23 });
    let number = number - if is_tiny { 1.0 } else { 0.0 };
    f32::from_bits(number.to_bits() | sign)
}

/// The number of each code of a step, times its scale.
#[inline(always)]
fn scaled(codes: &[u8; STEP_BYTES], scales: &[f32; STEP_BYTES], number: impl Fn(u8) -> f32) -> [f32; STEP_BYTES] {
    let mut numbers = [0.0; STEP_BYTES];
    for ((to, code), scale) in numbers.iter_mut().zip(codes).zip(scales) {
        *to = number(*code) * scale;
    }
    numbers
}

/// Calls `put` with each step of a block and its numbers, 32 at a time, which are two inputs of all outputs.
#[inline(always)]
fn for_each_pair(block: &Blocks<'_>, mut put: impl FnMut(usize, [f32; STEP_BYTES])) {
    let step = step(block.code);
    let mut pair = 0;
    for (group, codes) in block.codes.chunks(block.group.div_ceil(step) * STEP_BYTES).enumerate() {
        let scales = block.scales_of(group);
        for codes in codes.as_chunks::<STEP_BYTES>().0 {
            let numbers = match block.code {
                Code::E4m3 => scaled(codes, &scales, e4m3),
                Code::E2m1 => {
                    put(pair, scaled(codes, &scales, e2m1));
                    pair += 1;
                    scaled(codes, &scales, |code| e2m1(code >> 4))
                }
            };
            put(pair, numbers);
            pair += 1;
        }
    }
}

/// A block in pairs of bf16.
struct ToBf16<'a> {
    block: Blocks<'a>,
    to: &'a mut [u16],
}

impl Vectorized for ToBf16<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let to = self.to.as_chunks_mut::<STEP_BYTES>().0;
        for_each_pair(&self.block, |pair, numbers| {
            for (to, number) in to[pair].iter_mut().zip(numbers) {
                *to = rounded(number);
            }
        });
    }
}

/// A block in f32, one input after the other; the last one has no partner where their number is odd.
struct ToF32<'a> {
    block: Blocks<'a>,
    to: &'a mut [f32],
}

impl Vectorized for ToF32<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { block, to } = self;
        let to = to.as_chunks_mut::<LANES>().0;
        for_each_pair(&block, |pair, numbers| {
            for (input, to) in to.iter_mut().skip(2 * pair).take(2).enumerate() {
                for (lane, to) in to.iter_mut().enumerate() {
                    let number = numbers[2 * lane + input];
                    *to = if block.is_rounded { f32::from_bits(u32::from(rounded(number)) << 16) } else { number };
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stand_for_the_numbers_of_their_definition() {
        for code in 0..=u8::MAX {
            let (found, expected) = (e4m3(code), Code::E4m3.number(code));
            assert!(found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan()), "{code:x}");
            assert_eq!(e2m1(code).to_bits(), Code::E2m1.number(code).to_bits(), "{code:x}");
        }
    }
}
