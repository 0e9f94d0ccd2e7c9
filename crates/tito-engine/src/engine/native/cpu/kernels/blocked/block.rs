//! Blocks of a GGUF file, 16 rows side by side.
//!
//! A piece is a block of each of 16 rows. It has 16 scales and 16 minima, for each group 16 integers for either, and steps
//! of eight inputs. A step has two words for each row, with the codes of four inputs each, the first in the lowest bits. So a
//! vector of words has the rows in its lanes, and a shift brings the codes of an input to the same place in all of them.
//! The lower 16 bits of both words are 32 bits that the rows have side by side, then come the others, and a word of eight bits
//! for each code is 32 bits itself. This is as large as the file, but for integers of 6 bits and codes of 2 and 3 bits: 3 %
//! more for `Q4_K`, 2 % for `Q5_K`.

use half::f16;

use super::super::LANES;
use crate::engine::native::weights::{BlockFormat, SplitBlock};

/// Inputs of a step.
pub(super) const STEP: usize = 8;
/// Inputs of a word.
pub(super) const WORD: usize = 4;
/// Bytes of the lower 16 bits of all words of a step.
pub(super) const LOWER: usize = LANES * size_of::<u32>();

/// The bytes of a step of codes of so many bits.
pub(super) const fn step_bytes(bits: usize) -> usize {
    LANES * STEP * bits / 8
}

/// Where the parts of a piece are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) format: BlockFormat,
    /// Of the integers of groups.
    pub(super) small: usize,
    /// Of the first step.
    pub(super) steps: usize,
    pub(super) step_bytes: usize,
    pub(super) piece_bytes: usize,
}

/// 16 rows of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) layout: Layout,
    pub(super) bytes: &'a [u8],
}

impl Layout {
    pub(super) fn new(format: BlockFormat) -> Self {
        let kinds = 1 + usize::from(format.has_minimum);
        let step_bytes = step_bytes(format.bits);
        let small = kinds * LANES * size_of::<f16>();
        let steps = small + if format.groups() > 1 { kinds * format.groups() * LANES } else { 0 };
        Self { format, small, steps, step_bytes, piece_bytes: steps + format.numbers / STEP * step_bytes }
    }

    /// The bytes of 16 rows.
    pub(super) fn block_bytes(&self, inputs: usize) -> usize {
        inputs / self.format.numbers * self.piece_bytes
    }

    /// Writes a row's block into a piece.
    pub(super) fn write(&self, piece: &mut [u8], lane: usize, block: &SplitBlock) {
        let kinds = [(block.scale, &block.scales), (block.minimum, &block.minima)];
        let groups = self.format.groups();
        for (kind, (large, small)) in kinds.into_iter().take(1 + usize::from(self.format.has_minimum)).enumerate() {
            piece[2 * (kind * LANES + lane)..][..2].copy_from_slice(&large.to_le_bytes());
            if groups > 1 {
                for (group, small) in small[..groups].iter().enumerate() {
                    piece[self.small + (kind * groups + group) * LANES + lane] = small.cast_unsigned();
                }
            }
        }
        let steps = piece[self.steps..].chunks_exact_mut(self.step_bytes);
        for (step, codes) in steps.zip(block.codes.as_chunks::<STEP>().0) {
            for (half, codes) in codes.as_chunks::<WORD>().0.iter().enumerate() {
                self.write_word(step, lane, half, self.word(*codes));
            }
        }
    }

    /// Codes side by side. Those with an offset get that of their number of bits.
    fn word(&self, codes: [u8; WORD]) -> u32 {
        let BlockFormat { bits, offset, .. } = self.format;
        let shift = middle(bits, self.format.has_minimum);
        let code = |code: u8| u32::from(code.wrapping_sub(offset).wrapping_add(shift)) & (u32::MAX >> (32 - bits));
        codes.into_iter().rev().fold(0, |word, next| word << bits | code(next))
    }

    fn write_word(&self, step: &mut [u8], lane: usize, half: usize, word: u32) {
        let [first, second, third, fourth] = word.to_le_bytes();
        if self.format.bits == 8 {
            return step[half * LOWER + 4 * lane..][..4].copy_from_slice(&[first, second, third, fourth]);
        }
        let (lower, upper) = step.split_at_mut(LOWER);
        lower[4 * lane + 2 * half..][..2].copy_from_slice(&[first, second]);
        match self.format.bits {
            5 => upper[lane] = upper[lane] & !(0xf << (4 * half)) | third << (4 * half),
            6 => upper[2 * lane + half] = third,
            _ => (),
        }
    }

    /// A word of a row. What is above its codes is of others.
    #[inline(always)]
    pub(super) fn read_word(&self, step: &[u8], lane: usize, half: usize) -> u32 {
        if self.format.bits == 8 {
            return u32_at(step, half * LOWER + 4 * lane);
        }
        let lower = u32_at(step, 4 * lane) >> (16 * half) & 0xffff;
        let upper = match self.format.bits {
            5 => step[LOWER + lane] >> (4 * half),
            6 => step[LOWER + 2 * lane + half],
            _ => 0,
        };
        lower | u32::from(upper) << 16
    }

    /// The scale of a row in a group (kind 0) or its minimum (1). What has no minimum gets what changes no number.
    pub(super) fn factor(&self, piece: &[u8], kind: usize, group: usize, lane: usize) -> f32 {
        if kind == 1 && !self.format.has_minimum {
            return -0.0;
        }
        let at = 2 * (kind * LANES + lane);
        let large = widened(u16::from_le_bytes([piece[at], piece[at + 1]]));
        let groups = self.format.groups();
        let small = |groups: usize| piece[self.small + (kind * groups + group) * LANES + lane].cast_signed();
        if groups > 1 { large * f32::from(small(groups)) } else { large }
    }

    /// The code of an input of a row in a step, less its offset.
    pub(super) fn code(&self, step: &[u8], lane: usize, input: usize) -> i32 {
        let BlockFormat { bits, has_minimum, .. } = self.format;
        let above = self.read_word(step, lane, input / WORD) << (32 - bits * (input % WORD + 1));
        let code = if bits == 8 { above.cast_signed() >> 24 } else { (above >> (32 - bits)).cast_signed() };
        code - i32::from(middle(bits, has_minimum))
    }
}

/// What is taken off codes: where nothing is added, half of the numbers are below 0. Those of eight bits have a sign.
#[inline(always)]
pub(super) const fn middle(bits: usize, has_minimum: bool) -> u8 {
    if has_minimum || bits == 8 { 0 } else { 1 << (bits - 1) }
}

#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The number of a half float, without a branch: its bits are those of a number of f32 with another bias.
#[inline(always)]
pub(super) fn widened(half: u16) -> f32 {
    /// Two to the power of 112, the difference between the biases.
    const BIAS: f32 = f32::from_bits((127 + 112) << 23);
    let (size, sign) = (u32::from(half & 0x7fff) << 13, u32::from(half & 0x8000) << 16);
    let number = (f32::from_bits(size) * BIAS).to_bits();
    f32::from_bits(sign | if half & 0x7c00 == 0x7c00 { size | f32::INFINITY.to_bits() } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_floats_are_widened_as_the_half_crate_does() {
        for bits in 0..=u16::MAX {
            let expected = f16::from_bits(bits).to_f32();
            let found = widened(bits);
            assert!(found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan()), "{bits:x}");
        }
    }
}
