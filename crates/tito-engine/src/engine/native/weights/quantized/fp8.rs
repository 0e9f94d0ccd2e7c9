//! Weights in FP8, as DeepSeek and Qwen publish them: `quant_method` fp8.
//!
//! `X.weight` is E4M3, and `X.weight_scale_inv` (or `X.weight_scale`) has a scale for each block of `weight_block_size`
//! rows and columns, or one for the whole matrix where no size is given. Blocks at the edges are smaller. A weight is its
//! number times the scale of its block, in f32; a matrix in bf16 rounds that to the nearest, the even one of two.
//!
//! So has it `weight_dequant` in DeepSeek-V3's `inference/kernel.py`, and `FP8BlockDequantizer` of compressed-tensors.
//! transformers' `Fp8Dequantize` computes the same, for matrices that are made up of whole blocks.

use std::ops::Range;

use safetensors::Dtype;

use super::{
    Format, Role,
    module::Module,
    scales::{Blocks, Rounding, Scales},
    section::Section,
    unheeded,
};
use crate::engine::native::weights::{Code, CodedRows, Codes, E4M3, Rows, WeightsError, safetensors::RawTensor};

/// What scales are called; the first one that is there counts.
const SCALES: [&str; 2] = ["weight_scale_inv", "weight_scale"];

/// Rows of E4M3: each number times the scale of its block, rounded.
struct Fp8Rows<'a> {
    weight: RawTensor<'a>,
    matrix: [usize; 2],
    scales: Scales,
    rounding: Rounding,
}

impl Fp8Rows<'_> {
    fn bytes(&self, rows: Range<usize>) -> Result<Vec<u8>, WeightsError> {
        let [_, columns] = self.matrix;
        self.weight.read(rows.start * columns..rows.end * columns)
    }
}

impl Rows for Fp8Rows<'_> {
    fn rows(&self) -> usize {
        self.matrix[0]
    }

    fn columns(&self) -> usize {
        self.matrix[1]
    }

    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        out.try_reserve(rows.len().saturating_mul(self.matrix[1])).map_err(|_| WeightsError::NoRoom)?;
        let bytes = self.bytes(rows.clone())?;
        for (row, bytes) in rows.zip(bytes.chunks_exact(self.matrix[1].max(1))) {
            for (block, scale) in bytes.chunks(self.scales.width()).zip(self.scales.of_row(row)) {
                out.extend(block.iter().map(|byte| self.rounding.round(E4M3[usize::from(*byte)] * scale)));
            }
        }
        Ok(())
    }

    fn coded(&self) -> Option<&dyn CodedRows> {
        // What is rounded to f16 first is another number than what is rounded to bf16 at once.
        (self.rounding != Rounding::F16).then_some(self)
    }
}

impl CodedRows for Fp8Rows<'_> {
    fn code(&self) -> Code {
        Code::E4m3
    }

    fn rows(&self) -> usize {
        self.matrix[0]
    }

    fn columns(&self) -> usize {
        self.matrix[1]
    }

    fn group(&self) -> usize {
        self.scales.width()
    }

    fn is_rounded(&self) -> bool {
        self.rounding == Rounding::Bf16
    }

    fn read(&self, rows: Range<usize>) -> Result<Codes, WeightsError> {
        let scales = rows.clone().flat_map(|row| self.scales.of_row(row)).copied().collect();
        Ok(Codes { codes: self.bytes(rows)?, scales })
    }
}

/// The rows of a matrix in E4M3.
pub(super) fn rows(
    weight: RawTensor<'_>,
    matrix: [usize; 2],
    scales: Scales,
    rounding: Rounding,
) -> Box<dyn Rows + '_> {
    Box::new(Fp8Rows { weight, matrix, scales, rounding })
}

/// The format, as `quantization_config` describes it.
pub(super) struct Fp8 {
    /// Rows and columns of a block; `None` for the whole matrix.
    block: Option<[usize; 2]>,
}

impl Fp8 {
    /// Adds to `besides` what is asked of other things than weights.
    pub(super) fn read(config: &Section<'_>, besides: &mut Vec<&'static str>) -> Result<Self, String> {
        // The lists of modules say again what the types of the tensors say; `dequantize` is how transformers is to load.
        config.knows_only(&[
            "quant_method",
            "activation_scheme",
            "fmt",
            "weight_block_size",
            "scale_fmt",
            "expert_dtype",
            "modules_to_not_convert",
            "ignored_layers",
            "modules_to_convert",
            "dequantize",
            "kv_cache_scheme",
        ])?;
        config.is_one_of("fmt", &["e4m3", "float8_e4m3fn"])?;
        config.is_one_of("activation_scheme", &["dynamic", "static"])?;
        config.is_one_of("scale_fmt", &["float", "ue8m0"])?;
        config.is_one_of("expert_dtype", &["fp8"])?;
        unheeded::add(besides, unheeded::ACTIVATIONS);
        if config.value("kv_cache_scheme").is_some() {
            unheeded::add(besides, unheeded::KEYS_AND_VALUES);
        }
        let block: Option<[usize; 2]> = config.get("weight_block_size")?;
        if block.is_some_and(|block| block.contains(&0)) {
            return Err(config.refusal("weight_block_size", "has a side of no length"));
        }
        Ok(Self { block })
    }
}

/// The name of a module's scales.
fn scales_of(module: &Module<'_>) -> &'static str {
    SCALES.into_iter().find(|leaf| module.find(leaf).is_some()).unwrap_or(SCALES[0])
}

impl Format for Fp8 {
    fn role(&self, module: &Module<'_>, leaf: &str) -> Result<Role, WeightsError> {
        let is_packed = || module.find("weight").is_some_and(|weight| weight.dtype == Dtype::F8_E4M3);
        match leaf {
            "weight" if is_packed() => {
                module.tensor(scales_of(module))?;
                Ok(Role::Packed { name: module.named("weight"), shape: module.matrix("weight")?.to_vec() })
            }
            leaf if SCALES.contains(&leaf) && is_packed() && leaf == scales_of(module) => Ok(Role::Companion),
            _ => Ok(unheeded::role(module, leaf).unwrap_or(Role::Stored)),
        }
    }

    fn open<'a>(&self, module: &Module<'a>, _: &str) -> Result<Box<dyn Rows + 'a>, WeightsError> {
        let matrix = module.matrix("weight")?;
        let blocks = Blocks { matrix, block: self.block.unwrap_or(matrix.map(|side| side.max(1))) };
        let scales = Scales::read(module, scales_of(module), blocks)?;
        Ok(rows(module.tensor("weight")?, matrix, scales, Rounding::Single))
    }
}
