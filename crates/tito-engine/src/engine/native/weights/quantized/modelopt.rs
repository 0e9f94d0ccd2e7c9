//! Checkpoints of NVIDIA's modelopt: `quant_method` modelopt, in FP8 with one scale for a matrix, or in NVFP4.
//!
//! In FP8 a weight is its number in E4M3 times `X.weight_scale`, in f32: `FP8QTensor.dequantize` for f32, and what `TensorRT`
//! and vLLM multiply with; for bf16 modelopt would round the scale first. For NVFP4 see there. Names of modules in `ignore`
//! say again what the types of the tensors say.

use safetensors::Dtype;

use super::{
    Format, Role, fp8,
    module::Module,
    nvfp4::{self, Global},
    scales::{Blocks, Rounding, Scales},
    section::Section,
    unheeded,
};
use crate::engine::native::weights::{Rows, WeightsError};

/// The format; how a weight is quantised is told by the type of its tensor.
pub(super) struct ModelOpt;

/// How a weight is quantised.
#[derive(PartialEq, Eq)]
enum ModelOptFormat {
    Fp8,
    Fp4,
}

impl ModelOpt {
    /// Adds to `besides` what is asked of other things than weights.
    pub(super) fn read(config: &Section<'_>, besides: &mut Vec<&'static str>) -> Result<Self, String> {
        let older = config.section("quantization")?;
        let parts = [Some(config), older.as_ref()];
        let mut parts = parts.into_iter().flatten();
        // First, as a file without it is none of modelopt's.
        let part = parts.find(|part| part.value("quant_algo").is_some()).ok_or("lacks `quant_algo`")?;
        config.knows_only(&[
            "quant_method",
            "quant_algo",
            "quantization",
            "config_groups",
            "kv_cache_scheme",
            "kv_cache_quant_algo",
            "group_size",
            "producer",
            "ignore",
            "exclude_modules",
        ])?;
        if let Some(older) = &older {
            older.knows_only(&["quant_algo", "kv_cache_quant_algo", "group_size", "exclude_modules"])?;
        }
        part.is_one_of("quant_algo", &["fp8", "nvfp4"])?;
        if part.get::<usize>("group_size")?.is_some_and(|size| size != 16) {
            return Err(part.refusal("group_size", "is not supported; 16 is"));
        }
        unheeded::add(besides, unheeded::ACTIVATIONS);
        let keys = ["kv_cache_scheme", "kv_cache_quant_algo"];
        if keys.iter().any(|key| part.value(key).is_some()) {
            unheeded::add(besides, unheeded::KEYS_AND_VALUES);
        }
        Ok(Self)
    }

    fn kind(module: &Module<'_>) -> Option<ModelOptFormat> {
        module.find("weight_scale")?;
        match module.find("weight")?.dtype {
            Dtype::F8_E4M3 => Some(ModelOptFormat::Fp8),
            Dtype::U8 => Some(ModelOptFormat::Fp4),
            _ => None,
        }
    }
}

impl Format for ModelOpt {
    fn role(&self, module: &Module<'_>, leaf: &str) -> Result<Role, WeightsError> {
        let kind = || Self::kind(module);
        let packed = |matrix: [usize; 2]| Role::Packed { name: module.named("weight"), shape: matrix.to_vec() };
        Ok(match leaf {
            "weight" => match kind() {
                Some(ModelOptFormat::Fp8) => packed(module.matrix("weight")?),
                Some(ModelOptFormat::Fp4) => packed(nvfp4::matrix(module, "weight")?),
                None => Role::Stored,
            },
            "weight_scale" if kind().is_some() => Role::Companion,
            "weight_scale_2" if kind() == Some(ModelOptFormat::Fp4) => Role::Companion,
            _ => unheeded::role(module, leaf).unwrap_or(Role::Stored),
        })
    }

    fn open<'a>(&self, module: &Module<'a>, _: &str) -> Result<Box<dyn Rows + 'a>, WeightsError> {
        if Self::kind(module) == Some(ModelOptFormat::Fp4) {
            return nvfp4::rows(module, "weight", Global::Multiplies("weight_scale_2"), Rounding::Single);
        }
        let matrix = module.matrix("weight")?;
        let scales = Scales::read(module, "weight_scale", Blocks { matrix, block: matrix.map(|side| side.max(1)) })?;
        Ok(fp8::rows(module.tensor("weight")?, matrix, scales, Rounding::Single))
    }
}
