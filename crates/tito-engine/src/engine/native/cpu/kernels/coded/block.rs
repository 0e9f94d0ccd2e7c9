//! Codes in blocks.
//!
//! A block has 16 outputs, and steps of 32 bytes. Those of eight bits have two inputs: two codes for each output, one output
//! after the other, which is the order in which bf16 is packed. Those of four bits have four inputs: the lower halves of
//! the bytes are the first two, the upper halves the others.

use half::bf16;

use super::super::{LANES, pages::Slice};
use crate::engine::native::weights::Code;

/// The bytes of a step.
pub(super) const STEP_BYTES: usize = 2 * LANES;

/// How many inputs a step has.
pub(super) fn step(code: Code) -> usize {
    match code {
        Code::E4m3 => 2,
        Code::E2m1 => 4,
    }
}

/// The bytes of the codes of a block with so many inputs.
pub(super) fn block_bytes(code: Code, depth: usize) -> usize {
    depth / step(code) * STEP_BYTES
}

/// The scales of a block.
pub(super) fn block_scales(depth: usize, group: usize) -> usize {
    depth.div_ceil(group) * LANES
}

/// Blocks of 16 outputs each that follow each other in a matrix in codes.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    pub(super) code: Code,
    pub(super) codes: &'a [u8],
    /// For each block and group a scale for each output.
    pub(super) scales: Slice<'a>,
    /// Inputs, padded to what bf16 is multiplied by.
    pub(super) depth: usize,
    /// Inputs that share a scale: whole steps, or all of them.
    pub(super) group: usize,
    /// Whether numbers are rounded to bf16 in f32, too.
    pub(super) is_rounded: bool,
    /// See [`is_tame`].
    pub(super) is_tame: bool,
}

/// Whether no code is NaN, and all products of numbers and scales are 0 or far from the ends of what bf16 and f32 hold.
pub(super) fn is_tame(code: Code, codes: &[u8], scales: &[f32]) -> bool {
    const LEAST: f32 = 1.0 / MOST;
    /// Two to the power of 100.
    const MOST: f32 = f32::from_bits((127 + 100) << 23);
    let is_number = |byte: &u8| code == Code::E2m1 || byte & 0x7f != 0x7f;
    // Powers of two are added to exponents, which 0 is none of.
    let is_usual = |scale: &f32| (LEAST..=MOST).contains(&scale.abs()) || (*scale == 0.0 && code == Code::E4m3);
    codes.iter().all(is_number) && scales.iter().all(is_usual)
}

/// Writes the codes of an output into a block.
pub(super) fn write_codes(code: Code, block: &mut [u8], lane: usize, codes: &[u8]) {
    for (codes, bytes) in codes.chunks(step(code)).zip(block.chunks_exact_mut(STEP_BYTES)) {
        for (input, code_of_input) in codes.iter().enumerate() {
            let byte = &mut bytes[2 * lane + input % 2];
            *byte = match (code, input / 2) {
                (Code::E4m3, _) => *code_of_input,
                (Code::E2m1, 0) => *byte & 0xf0 | code_of_input & 0xf,
                (Code::E2m1, _) => *byte & 0xf | code_of_input << 4,
            };
        }
    }
}

impl Blocks<'_> {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.codes.len() / self.block_bytes()
    }

    /// The bytes of the codes of a block.
    pub(super) fn block_bytes(&self) -> usize {
        block_bytes(self.code, self.depth)
    }

    /// The scales of a block.
    pub(super) fn block_scales(&self) -> usize {
        block_scales(self.depth, self.group)
    }

    /// One number of the first block.
    pub(super) fn number(&self, lane: usize, input: usize) -> f32 {
        let step = step(self.code);
        let byte = self.codes[input / step * STEP_BYTES + 2 * lane + input % 2];
        let code = if self.code == Code::E2m1 && input % step / 2 == 1 { byte >> 4 } else { byte };
        let number = self.code.number(code) * self.scales.get(input / self.group * LANES + lane);
        if self.is_rounded { bf16::from_f32(number).to_f32() } else { number }
    }

    /// The scales of a group of the first block, twice each, as the codes of a step are.
    #[inline(always)]
    pub(super) fn scales_of(&self, group: usize) -> [f32; STEP_BYTES] {
        let mut scales = [0.0; STEP_BYTES];
        for (lane, twice) in scales.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            twice.fill(self.scales.get(group * LANES + lane));
        }
        scales
    }
}
