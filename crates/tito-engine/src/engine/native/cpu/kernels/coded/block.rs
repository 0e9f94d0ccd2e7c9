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

/// 16 outputs of a matrix in codes.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) code: Code,
    pub(super) codes: &'a [u8],
    /// For each group a scale for each output.
    pub(super) scales: Slice<'a>,
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

impl Block<'_> {
    /// One number.
    pub(super) fn number(&self, lane: usize, input: usize) -> f32 {
        let step = step(self.code);
        let byte = self.codes[input / step * STEP_BYTES + 2 * lane + input % 2];
        let code = if self.code == Code::E2m1 && input % step / 2 == 1 { byte >> 4 } else { byte };
        let number = self.code.number(code) * self.scales.get(input / self.group * LANES + lane);
        if self.is_rounded { bf16::from_f32(number).to_f32() } else { number }
    }

    /// The scales of a group, twice each, as the codes of a step are.
    #[inline(always)]
    pub(super) fn scales_of(&self, group: usize) -> [f32; STEP_BYTES] {
        std::array::from_fn(|place| self.scales.get(group * LANES + place / 2))
    }
}
