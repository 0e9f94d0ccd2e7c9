//! Whole tensors of scales, zero-points and indices.

use half::{bf16, f16};
use safetensors::Dtype;

use super::module::Module;
use crate::engine::native::weights::{E4M3, WeightsError, e8m0};

/// All numbers of a tensor of a module, in f32.
pub(super) fn numbers_of(module: &Module<'_>, leaf: &str) -> Result<Vec<f32>, WeightsError> {
    let raw = module.tensor(leaf)?;
    let bytes = raw.read(0..raw.length)?;
    let two = || bytes.as_chunks::<2>().0.iter();
    Ok(match raw.dtype {
        Dtype::F32 => bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect(),
        Dtype::BF16 => two().map(|two| bf16::from_le_bytes(*two).to_f32()).collect(),
        Dtype::F16 => two().map(|two| f16::from_le_bytes(*two).to_f32()).collect(),
        Dtype::F8_E4M3 => bytes.iter().map(|byte| E4M3[usize::from(*byte)]).collect(),
        Dtype::F8_E8M0 => bytes.iter().map(|byte| e8m0(*byte)).collect(),
        other => return Err(module.refusal(&format!("{leaf} is of type {other:?}"))),
    })
}

/// All 32-bit words of a tensor of a module.
pub(super) fn words_of(module: &Module<'_>, leaf: &str) -> Result<Vec<u32>, WeightsError> {
    let raw = module.tensor(leaf)?;
    if raw.dtype != Dtype::I32 {
        return Err(module.refusal(&format!("{leaf} is of type {:?}, not I32", raw.dtype)));
    }
    let bytes = raw.read(0..raw.length)?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|four| u32::from_le_bytes(*four)).collect())
}
