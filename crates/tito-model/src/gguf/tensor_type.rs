//! How the numbers of a tensor are stored.

use std::borrow::Cow;

use candle_core::{CpuStorage, quantized::GgmlDType};

/// The type of a tensor: one that candle reads, or MXFP4, in which gpt-oss is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorType {
    /// A type that candle reads.
    Ggml(GgmlDType),
    /// Numbers of 4 bits, 32 of which share a power of two.
    Mxfp4,
}

/// Numbers of a block of MXFP4, and its bytes: the power, and two numbers in each of the others.
const MXFP4_BLOCK: (usize, usize) = (32, 17);

/// Twice what 4 bits stand for.
const MXFP4_NUMBERS: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, -0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0];

impl TensorType {
    /// The type that has this number in files.
    pub(super) fn numbered(number: u32) -> Option<Self> {
        Some(Self::Ggml(match number {
            0 => GgmlDType::F32,
            1 => GgmlDType::F16,
            2 => GgmlDType::Q4_0,
            3 => GgmlDType::Q4_1,
            6 => GgmlDType::Q5_0,
            7 => GgmlDType::Q5_1,
            8 => GgmlDType::Q8_0,
            9 => GgmlDType::Q8_1,
            10 => GgmlDType::Q2K,
            11 => GgmlDType::Q3K,
            12 => GgmlDType::Q4K,
            13 => GgmlDType::Q5K,
            14 => GgmlDType::Q6K,
            15 => GgmlDType::Q8K,
            30 => GgmlDType::BF16,
            39 => return Some(Self::Mxfp4),
            _ => return None,
        }))
    }

    /// How many numbers a block has.
    pub(super) fn block_size(self) -> usize {
        match self {
            Self::Ggml(dtype) => dtype.block_size(),
            Self::Mxfp4 => MXFP4_BLOCK.0,
        }
    }

    /// How many bytes a block has.
    pub(super) fn type_size(self) -> usize {
        match self {
            Self::Ggml(dtype) => dtype.type_size(),
            Self::Mxfp4 => MXFP4_BLOCK.1,
        }
    }

    /// The numbers of whole blocks, or why there are none.
    pub(super) fn dequantize(self, bytes: &[u8], numbers: usize) -> Result<Vec<f32>, String> {
        let Self::Ggml(dtype) = self else { return Ok(mxfp4(bytes)) };
        match dtype.from_data(Cow::Borrowed(bytes)).dequantize(numbers) {
            Ok(CpuStorage::F32(values)) => Ok(values),
            Ok(_) => Err("it was not dequantised to float32".to_owned()),
            Err(reason) => Err(reason.to_string()),
        }
    }
}

/// The first half of a block is in the lower bits of its bytes.
fn mxfp4(bytes: &[u8]) -> Vec<f32> {
    let (blocks, _) = bytes.as_chunks::<{ MXFP4_BLOCK.1 }>();
    let mut numbers = Vec::with_capacity(blocks.len() * MXFP4_BLOCK.0);
    for [power, packed @ ..] in blocks {
        // Half of the power of two, since the numbers are doubled.
        let half = f64::from(i32::from(*power) - 128).exp2();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a number of f32, but for the greatest powers, which overflow"
        )]
        let number = |bits: u8| (f64::from(MXFP4_NUMBERS[usize::from(bits)]) * half) as f32;
        numbers.extend(packed.iter().map(|byte| number(byte & 15)));
        numbers.extend(packed.iter().map(|byte| number(byte >> 4)));
    }
    numbers
}

/// The codes of whole blocks of MXFP4, one a byte, and the power of each block.
pub(super) fn mxfp4_codes(bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (blocks, _) = bytes.as_chunks::<{ MXFP4_BLOCK.1 }>();
    let [mut codes, mut powers] = [MXFP4_BLOCK.0, 1].map(|each| Vec::with_capacity(blocks.len() * each));
    for [power, packed @ ..] in blocks {
        powers.push(*power);
        codes.extend(packed.iter().map(|byte| byte & 15));
        codes.extend(packed.iter().map(|byte| byte >> 4));
    }
    (codes, powers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_mxfp4_has_its_first_half_in_the_lower_bits() {
        let mut block = [0; 17];
        block[0] = 128;
        block[1] = 0x72;
        block[16] = 0xf1;
        let numbers = TensorType::Mxfp4.dequantize(&block, 32).unwrap();
        assert_eq!((numbers[0], numbers[16], numbers[15], numbers[31]), (2.0, 12.0, 1.0, -12.0));
        assert!(numbers[1..15].iter().all(|number| number.to_bits() == 0));
    }
}
