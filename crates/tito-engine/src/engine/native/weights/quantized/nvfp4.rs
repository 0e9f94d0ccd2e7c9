//! Weights in NVFP4: two numbers in E2M1 a byte, the lower half first, with a scale in E4M3 for each 16 columns and one in
//! f32 for the whole matrix.
//!
//! compressed-tensors (`nvfp4-pack-quantized`) divides: `X.weight_packed` times (`X.weight_scale` / `X.weight_global_scale`),
//! rounded to bf16 (`NVFP4PackedCompressor.decompress`). NVIDIA's modelopt multiplies: `X.weight` times (`X.weight_scale` times
//! `X.weight_scale_2`) (`NVFP4QTensor.dequantize`). Both do it in f32.

use safetensors::Dtype;

use super::{
    Unpack, Widened,
    module::Module,
    numbers::numbers_of,
    scales::{Blocks, Rounding, Scales},
};
use crate::engine::native::weights::{E2M1, Rows, WeightsError};

/// The columns of a group.
const GROUP: usize = 16;

/// What becomes of the scale of the whole matrix.
#[derive(Clone, Copy)]
pub(super) enum Global {
    /// Scales of groups are divided by this tensor.
    Divides(&'static str),
    /// Scales of groups are multiplied with this tensor.
    Multiplies(&'static str),
}

/// Rows of NVFP4.
struct Fp4Rows {
    scales: Scales,
    rounding: Rounding,
}

impl Unpack for Fp4Rows {
    fn row(&self, row: usize, packed: &[u8], out: &mut Vec<f32>) {
        for (group, scale) in packed.chunks(GROUP / 2).zip(self.scales.of_row(row)) {
            let numbers = group.iter().flat_map(|two| [two & 0xf, two >> 4]);
            out.extend(numbers.map(|number| self.rounding.round(E2M1[usize::from(number)] * scale)));
        }
    }
}

/// Rows and columns of the matrix that a tensor of bytes holds.
pub(super) fn matrix(module: &Module<'_>, leaf: &str) -> Result<[usize; 2], WeightsError> {
    let [rows, bytes] = module.matrix(leaf)?;
    let columns = bytes.checked_mul(2).filter(|columns| columns.is_multiple_of(GROUP));
    columns.map(|columns| [rows, columns]).ok_or_else(|| module.refusal(&format!("{bytes} bytes are no whole groups")))
}

/// The rows of a module's matrix.
pub(super) fn rows<'a>(
    module: &Module<'a>,
    leaf: &str,
    global: Global,
    rounding: Rounding,
) -> Result<Box<dyn Rows + 'a>, WeightsError> {
    let (weight, scale) = (module.tensor(leaf)?, module.tensor("weight_scale")?);
    if weight.dtype != Dtype::U8 || scale.dtype != Dtype::F8_E4M3 {
        return Err(module.refusal(&format!("it is {:?} with scales of {:?}", weight.dtype, scale.dtype)));
    }
    let matrix = matrix(module, leaf)?;
    let blocks = Blocks { matrix, block: [1, GROUP] };
    if !blocks.fit(scale.shape) {
        return Err(module.refusal(&format!("its scales are {:?}, for a matrix of {matrix:?}", scale.shape)));
    }
    let (Global::Divides(whole) | Global::Multiplies(whole)) = global;
    if !matches!(module.tensor(whole)?.shape, [] | [1]) {
        return Err(module.refusal(&format!("{whole} is not one number")));
    }
    let whole: f32 = numbers_of(module, whole)?.into_iter().sum();
    let of_group = |scale: f32| match global {
        Global::Divides(_) => scale / whole,
        Global::Multiplies(_) => scale * whole,
    };
    let scales = numbers_of(module, "weight_scale")?.into_iter().map(of_group).collect();
    let [rows, columns] = matrix;
    let unpack = Box::new(Fp4Rows { scales: Scales::of(scales, blocks), rounding });
    Ok(Box::new(Widened { packed: Some(weight), rows, columns, row_bytes: columns / 2, unpack }))
}
