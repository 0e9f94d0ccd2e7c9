//! The blocks of GGUF files, taken apart: small integers, and what they are multiplied with.
//!
//! A number is `scale * code + minimum`, where a type may have a scale and a minimum for each group, small integers by
//! which those of the block are multiplied. In f32 the product is exact for every type here (at most 11 bits of a scale, 7
//! of the group's integer, 5 of a code), so that there is one rounding, whether it is fused with the sum or not.

use std::ops::Range;

use candle_core::quantized::GgmlDType;
use half::f16;

use super::WeightsError;

/// The most numbers of a block.
pub(crate) const MOST: usize = 256;
/// The most groups of a block.
const GROUPS: usize = 16;

/// How a type of blocks writes numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockFormat {
    dtype: GgmlDType,
    /// Bits of a code: 4, 5, 6, or 8 with a sign. Codes of less than 4 bits are given as 4.
    pub(crate) bits: usize,
    /// What is taken off a code.
    pub(crate) offset: u8,
    /// Numbers of a block.
    pub(crate) numbers: usize,
    /// Numbers of a group; a block that is one group has no integers for groups.
    pub(crate) group: usize,
    /// Whether there is something to be added.
    pub(crate) has_minimum: bool,
}

impl BlockFormat {
    /// The format of a type; none for those that hold no such codes, or scales in more than 16 bits.
    pub(crate) fn of(dtype: GgmlDType) -> Option<Self> {
        let (bits, offset, numbers, group, has_minimum) = match dtype {
            GgmlDType::Q4_0 => (4, 8, 32, 32, false),
            GgmlDType::Q4_1 => (4, 0, 32, 32, true),
            GgmlDType::Q5_0 => (5, 16, 32, 32, false),
            GgmlDType::Q5_1 => (5, 0, 32, 32, true),
            GgmlDType::Q8_0 => (8, 0, 32, 32, false),
            GgmlDType::Q2K => (4, 0, 256, 16, true),
            GgmlDType::Q3K => (4, 4, 256, 16, false),
            GgmlDType::Q4K => (4, 0, 256, 32, true),
            GgmlDType::Q5K => (5, 0, 256, 32, true),
            GgmlDType::Q6K => (6, 32, 256, 16, false),
            GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 | GgmlDType::Q8_1 | GgmlDType::Q8K => return None,
        };
        Some(Self { dtype, bits, offset, numbers, group, has_minimum })
    }

    /// The bytes of a block in a file.
    pub(crate) fn bytes(&self) -> usize {
        self.dtype.type_size()
    }

    /// Groups of a block.
    pub(crate) fn groups(&self) -> usize {
        self.numbers / self.group
    }

    /// Takes a block of a file apart.
    ///
    /// # Panics
    /// If it has not [`BlockFormat::bytes`].
    pub(crate) fn split(&self, block: &[u8]) -> SplitBlock {
        assert_eq!(block.len(), self.bytes(), "a whole block");
        let mut split = SplitBlock::default();
        match self.dtype {
            GgmlDType::Q8_0 => {
                split.scale = half_at(block, 0);
                split.codes[..32].copy_from_slice(&block[2..]);
            }
            GgmlDType::Q2K => split_q2k(block, &mut split),
            GgmlDType::Q3K => split_q3k(block, &mut split),
            GgmlDType::Q4K | GgmlDType::Q5K => split_q4k(block, self.bits == 5, &mut split),
            GgmlDType::Q6K => split_q6k(block, &mut split),
            _ => split_simple(block, self, &mut split),
        }
        split
    }
}

/// A block in parts; of what its format does not have, there are zeros.
#[derive(Debug, Clone)]
pub(crate) struct SplitBlock {
    /// One for each number; those of 8 bits have a sign.
    pub(crate) codes: [u8; MOST],
    /// The scale.
    pub(crate) scale: f16,
    /// What is added.
    pub(crate) minimum: f16,
    /// For each group an integer that the scale is multiplied by.
    pub(crate) scales: [i8; GROUPS],
    /// For each group an integer that the minimum is multiplied by.
    pub(crate) minima: [i8; GROUPS],
}

impl Default for SplitBlock {
    fn default() -> Self {
        Self { codes: [0; MOST], scale: f16::ZERO, minimum: f16::ZERO, scales: [0; GROUPS], minima: [0; GROUPS] }
    }
}

/// Rows of whole blocks.
pub(crate) trait BlockRows: Sync {
    /// The blocks of some rows, as they are in the file.
    fn read(&self, rows: Range<usize>) -> Result<Vec<u8>, WeightsError>;
}

/// The half float there. All that are none become one, whose bits no rounding turns into a number.
fn half_at(block: &[u8], at: usize) -> f16 {
    let number = f16::from_le_bytes([block[at], block[at + 1]]);
    if number.is_nan() { f16::NAN } else { number }
}

/// A number of less than 7 bits.
fn small(number: u8) -> i8 {
    i8::try_from(number).unwrap_or(i8::MAX)
}

/// `Q4_0` to `Q5_1`: the scale, the minimum, the fifth bits, and the others of the first half beside those of the second.
fn split_simple(block: &[u8], format: &BlockFormat, split: &mut SplitBlock) {
    split.scale = half_at(block, 0);
    let mut rest = &block[2..];
    if format.has_minimum {
        split.minimum = half_at(block, 2);
        rest = &rest[2..];
    }
    let fifth = match (format.bits, rest.split_first_chunk::<4>()) {
        (5, Some((bits, others))) => {
            rest = others;
            u32::from_le_bytes(*bits)
        }
        _ => 0,
    };
    let bit = |place: usize| if fifth >> place & 1 == 1 { 16 } else { 0 };
    for (place, byte) in rest.iter().enumerate() {
        split.codes[place] = byte & 0xf | bit(place);
        split.codes[place + 16] = byte >> 4 | bit(place + 16);
    }
}

/// Two scales, 8 times two integers of 6 bits, and codes of 4 bits, or of 5 of which the upper ones come first.
fn split_q4k(block: &[u8], has_fifth: bool, split: &mut SplitBlock) {
    split.scale = half_at(block, 0);
    split.minimum = -half_at(block, 2);
    let packed = &block[4..16];
    for group in 0..4 {
        let (scale, minimum, both) = (packed[group], packed[group + 4], packed[group + 8]);
        (split.scales[group], split.minima[group]) = (small(scale & 63), small(minimum & 63));
        split.scales[group + 4] = small(both & 0xf | scale >> 6 << 4);
        split.minima[group + 4] = small(both >> 4 | minimum >> 6 << 4);
    }
    let (fifth, codes) = block[16..].split_at(if has_fifth { 32 } else { 0 });
    for (pair, codes) in codes.chunks_exact(32).enumerate() {
        for (place, byte) in codes.iter().enumerate() {
            let bit = |half: usize| fifth.get(place).map_or(0, |bits| (bits >> (2 * pair + half) & 1) << 4);
            split.codes[64 * pair + place] = byte & 0xf | bit(0);
            split.codes[64 * pair + 32 + place] = byte >> 4 | bit(1);
        }
    }
}

/// Four bits of the codes, two bits of them, 16 integers and the scale.
fn split_q6k(block: &[u8], split: &mut SplitBlock) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    split.scale = half_at(block, 208);
    for (to, scale) in split.scales.iter_mut().zip(scales) {
        *to = scale.cast_signed();
    }
    for (number, code) in split.codes.iter_mut().enumerate() {
        let (half, quarter, place) = (number / 128, number % 128 / 32, number % 32);
        let low = low[64 * half + 32 * (quarter % 2) + place] >> (4 * (quarter / 2)) & 0xf;
        *code = low | (high[32 * half + place] >> (2 * quarter) & 3) << 4;
    }
}

/// The third bits of the codes, two bits of them, 16 integers of 6 bits and the scale.
fn split_q3k(block: &[u8], split: &mut SplitBlock) {
    let (third, low, packed) = (&block[..32], &block[32..96], &block[96..108]);
    split.scale = half_at(block, 108);
    for (group, to) in split.scales.iter_mut().enumerate() {
        let low = packed[group % 8] >> (4 * (group / 8)) & 0xf;
        let high = packed[8 + group % 4] >> (2 * (group / 4)) & 3;
        *to = small(low | high << 4) - 32;
    }
    for (number, code) in split.codes.iter_mut().enumerate() {
        let (half, quarter, place) = (number / 128, number % 128 / 32, number % 32);
        let low = low[32 * half + place] >> (2 * quarter) & 3;
        *code = low | (third[place] >> (4 * half + quarter) & 1) << 2;
    }
}

/// 16 times two integers of 4 bits, codes of 2 bits, and two scales.
fn split_q2k(block: &[u8], split: &mut SplitBlock) {
    let (packed, codes) = (&block[..16], &block[16..80]);
    split.scale = half_at(block, 80);
    split.minimum = -half_at(block, 82);
    for (group, both) in packed.iter().enumerate() {
        (split.scales[group], split.minima[group]) = (small(both & 0xf), small(both >> 4));
    }
    for (number, code) in split.codes.iter_mut().enumerate() {
        let (half, quarter, place) = (number / 128, number % 128 / 32, number % 32);
        *code = codes[32 * half + place] >> (2 * quarter) & 3;
    }
}
