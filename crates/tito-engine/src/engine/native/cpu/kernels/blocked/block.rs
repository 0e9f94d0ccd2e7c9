//! Blocks of a GGUF file, 16 rows side by side.
//!
//! A piece is a block of each of 16 rows. It has 16 scales and 16 minima, for each group 16 integers for either, and steps
//! of four inputs. A step of four bits has 32 bytes: the lower halves are two codes for each row, one row after the other,
//! which is the order in which bf16 is packed, and the upper halves are those of the next two inputs. For each further bit
//! there are the 64 bits of these codes. A step of eight bits has one byte for each code. This is as large as the file, but
//! for integers of 6 bits and codes of 2 and 3 bits: 3 % more for `Q4_K`, 2 % for `Q5_K`.

use half::f16;

use super::super::LANES;
use crate::engine::native::weights::{BlockFormat, SplitBlock};

/// Inputs of a step.
pub(super) const STEP: usize = 4;
/// The numbers of two inputs.
pub(super) const PAIR: usize = 2 * LANES;
/// Bytes of the halves of a step.
pub(super) const HALVES: usize = 2 * LANES;
/// Bytes of one further bit of all codes of a step.
pub(super) const BITS: usize = STEP * LANES / 8;

/// The bytes of a step of codes of so many bits.
pub(super) const fn step_bytes(bits: usize) -> usize {
    if bits == 8 { STEP * LANES } else { HALVES + (bits - 4) * BITS }
}

/// Where the parts of a piece are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) format: BlockFormat,
    /// Of the integers of groups.
    small: usize,
    /// Of the first step.
    steps: usize,
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
            for (input, code) in codes.iter().enumerate() {
                self.write_code(step, lane, input, *code);
            }
        }
    }

    fn write_code(&self, step: &mut [u8], lane: usize, input: usize, code: u8) {
        let (pair, place) = (input / 2, 2 * lane + input % 2);
        if self.format.bits == 8 {
            step[pair * PAIR + place] = code;
            return;
        }
        let (halves, bits) = step.split_at_mut(HALVES);
        let shift = 4 * pair;
        halves[place] = halves[place] & !(0xf << shift) | (code & 0xf) << shift;
        let bit = pair * PAIR + place;
        for (further, bits) in bits.chunks_exact_mut(BITS).enumerate() {
            bits[bit / 8] = bits[bit / 8] & !(1 << (bit % 8)) | (code >> (4 + further) & 1) << (bit % 8);
        }
    }

    /// The scales of a group and its minima, of all rows. What has no minimum gets what changes no number.
    #[inline(always)]
    pub(super) fn scales(&self, piece: &[u8], group: usize) -> [[f32; LANES]; 2] {
        let of_kind = |kind: usize| {
            let (large, _) = piece[2 * kind * LANES..].as_chunks::<2>();
            let mut scales = [0.0; LANES];
            for (scale, large) in scales.iter_mut().zip(large) {
                *scale = widened(u16::from_le_bytes(*large));
            }
            for (scale, small) in scales.iter_mut().zip(self.small(piece, kind, group).into_iter().flatten()) {
                *scale *= f32::from(small.cast_signed());
            }
            scales
        };
        [of_kind(0), if self.format.has_minimum { of_kind(1) } else { [-0.0; LANES] }]
    }

    /// The integers of a group for its scales (0) or its minima (1), if there are any.
    #[inline(always)]
    pub(super) fn small<'a>(&self, piece: &'a [u8], kind: usize, group: usize) -> Option<&'a [u8; LANES]> {
        let groups = self.format.groups();
        let at = self.small + (kind * groups + group) * LANES;
        if groups > 1 { piece[at..].first_chunk() } else { None }
    }

    /// The bytes of the steps of a group.
    #[inline(always)]
    pub(super) fn steps<'a>(&self, piece: &'a [u8], group: usize) -> &'a [u8] {
        let bytes = self.format.group / STEP * self.step_bytes;
        &piece[self.steps + group * bytes..][..bytes]
    }

    /// The code at a place of a pair of a step, less its offset.
    #[inline(always)]
    pub(super) fn code(&self, step: &[u8], pair: usize, place: usize) -> i32 {
        if self.format.bits == 8 {
            return i32::from(step[pair * PAIR + place].cast_signed());
        }
        let mut code = i32::from(step[place] >> (4 * pair) & 0xf);
        let bit = pair * PAIR + place;
        for further in 0..self.format.bits - 4 {
            code |= i32::from(step[HALVES + further * BITS + bit / 8] >> (bit % 8) & 1) << (4 + further);
        }
        code - i32::from(self.format.offset)
    }
}

/// The number of a half float, without a branch: its bits are those of a number of f32 with another bias.
#[inline(always)]
fn widened(half: u16) -> f32 {
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
