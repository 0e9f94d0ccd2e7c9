//! Checkpoints of compressed-tensors, which llm-compressor writes: `quant_method` compressed-tensors.
//!
//! Which numbers a weight has is told by the types and shapes of its tensors, and must be what one of `config_groups` says
//! of weights. compressed-tensors multiplies in the type of the scales, so that a weight is the product rounded to that type
//! (`dequantize` in its `quantization/lifecycle/forward.py`), whatever type the matrix has.

use safetensors::Dtype;
use serde_json::Value;

use super::{
    Format, Role, fp8,
    ints::{self, Ints},
    module::Module,
    nvfp4::{self, Global},
    scales::{Blocks, Rounding, Scales},
    section::Section,
    unheeded,
};
use crate::engine::native::weights::{Rows, WeightsError};

/// The formats that are read. Those of a whole model may differ between its groups.
const FORMATS: [&str; 7] = [
    "float-quantized",
    "int-quantized",
    "naive-quantized",
    "pack-quantized",
    "nvfp4-pack-quantized",
    "mixed-precision",
    "dense",
];

/// How many numbers share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    Tensor,
    Channel,
    /// So many columns of a row.
    Group(usize),
    /// So many rows and columns.
    Block([usize; 2]),
}

/// What a group of `config_groups` says of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Args {
    bits: u32,
    /// Numbers with an exponent; else integers.
    is_float: bool,
    symmetric: bool,
    strategy: Strategy,
}

impl Strategy {
    fn read(weights: &Section<'_>) -> Result<Self, String> {
        let group: Option<i64> = weights.get("group_size")?;
        let of_size = || {
            let size = group.and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
            size.map(Self::Group).ok_or_else(|| weights.refusal("group_size", "is not the size of a group"))
        };
        let strategy = weights.get::<String>("strategy")?.map(|strategy| strategy.to_lowercase());
        match strategy.as_deref() {
            None => match group {
                None => Ok(Self::Tensor),
                Some(-1) => Ok(Self::Channel),
                Some(_) => of_size(),
            },
            Some("tensor") => Ok(Self::Tensor),
            Some("channel") => Ok(Self::Channel),
            Some("group" | "tensor_group") => of_size(),
            Some("block") => Self::read_block(weights).map(Self::Block),
            Some(_) => Err(weights.refusal("strategy", "is not supported for weights")),
        }
    }

    /// The sides of a block: a list of two, or such as `128x128`.
    fn read_block(weights: &Section<'_>) -> Result<[usize; 2], String> {
        const KEY: &str = "block_structure";
        let block: [usize; 2] = match weights.value(KEY) {
            Some(Value::String(text)) => {
                let sides = text.split_once('x').map(|(rows, columns)| [rows, columns].map(|side| side.trim().parse()));
                match sides {
                    Some([Ok(rows), Ok(columns)]) => [rows, columns],
                    _ => return Err(weights.refusal(KEY, "is not the size of a block")),
                }
            }
            _ => weights.require(KEY)?,
        };
        if block.contains(&0) {
            return Err(weights.refusal(KEY, "has a side of no length"));
        }
        Ok(block)
    }

    /// The blocks of a matrix. What is larger than it ends with it, so that what comes to the same is the same.
    fn blocks(self, matrix: [usize; 2]) -> Blocks {
        let [rows, columns] = matrix.map(|side| side.max(1));
        let block = match self {
            Self::Tensor => [rows, columns],
            Self::Channel => [1, columns],
            Self::Group(size) => [1, size.min(columns)],
            Self::Block([down, across]) => [down.min(rows), across.min(columns)],
        };
        Blocks { matrix, block }
    }
}

impl Args {
    fn read(weights: &Section<'_>) -> Result<Self, String> {
        weights.knows_only(&[
            "num_bits",
            "type",
            "symmetric",
            "group_size",
            "strategy",
            "block_structure",
            "dynamic",
            // What the tensors themselves say, and how they came about.
            "actorder",
            "scale_dtype",
            "zp_dtype",
            "observer",
            "observer_kwargs",
        ])?;
        weights.is_one_of("type", &["int", "float"])?;
        if weights.value("dynamic").is_some_and(|dynamic| dynamic.as_bool() != Some(false)) {
            return Err(weights.refusal("dynamic", "is not supported for weights"));
        }
        let is_float = weights.get::<String>("type")?.is_some_and(|kind| kind.eq_ignore_ascii_case("float"));
        let bits = weights.get("num_bits")?.unwrap_or(8);
        if !(if is_float { bits == 8 || bits == 4 } else { ints::BITS.contains(&bits) }) {
            return Err(weights.refusal("num_bits", "is not read for such a type"));
        }
        let symmetric = weights.get("symmetric")?.unwrap_or(true);
        if is_float && !symmetric {
            return Err(weights.refusal("symmetric", "is not supported for floats"));
        }
        Ok(Self { bits, is_float, symmetric, strategy: Strategy::read(weights)? })
    }
}

/// The format, as `quantization_config` describes it.
pub(super) struct CompressedTensors {
    groups: Vec<Args>,
}

impl CompressedTensors {
    /// Adds to `besides` what is asked of other things than weights.
    pub(super) fn read(config: &Section<'_>, besides: &mut Vec<&'static str>) -> Result<Self, String> {
        config.knows_only(&[
            "quant_method",
            "config_groups",
            "format",
            "quantization_status",
            "kv_cache_scheme",
            "sparsity_config",
            "version",
            "global_compression_ratio",
            // The types of the tensors say it again.
            "ignore",
        ])?;
        config.is_one_of("format", &FORMATS)?;
        // Older releases wrote "frozen" of compressed weights too; scales beside others are tensors that no model has.
        config.is_one_of("quantization_status", &["compressed", "frozen"])?;
        if let Some(sparsity) = config.section("sparsity_config")? {
            sparsity.require::<String>("format")?;
            sparsity.is_one_of("format", &["dense"])?;
        }
        if config.value("kv_cache_scheme").is_some() {
            unheeded::add(besides, unheeded::KEYS_AND_VALUES);
        }
        let mut all = Vec::new();
        let groups = match (config.section("config_groups")?, config.value("config_groups")) {
            (Some(groups), _) => groups,
            // Keys and values alone are quantised, or nothing.
            (None, Some(_)) => return Ok(Self { groups: all }),
            (None, None) => return Err("lacks `config_groups`".to_owned()),
        };
        for name in groups.keys() {
            let group = groups.section(name)?.ok_or_else(|| groups.refusal(name, "is empty"))?;
            group.knows_only(&["targets", "weights", "input_activations", "output_activations", "format"])?;
            group.is_one_of("format", &FORMATS)?;
            let asks = |key| group.value(key).is_some();
            if asks("input_activations") || asks("output_activations") {
                unheeded::add(besides, unheeded::ACTIVATIONS);
            }
            if let Some(weights) = group.section("weights")? {
                all.push(Args::read(&weights)?);
            }
        }
        Ok(Self { groups: all })
    }

    /// What the one group that fits a module's tensors says, and the blocks of its matrix.
    fn group_of(
        &self,
        module: &Module<'_>,
        matrix: [usize; 2],
        fits: impl Fn(&Args) -> bool,
    ) -> Result<(Args, Blocks), WeightsError> {
        let scale = module.tensor("weight_scale")?;
        let mut found: Vec<(Args, Blocks)> = Vec::new();
        for args in self.groups.iter().filter(|args| fits(args)) {
            let blocks = args.strategy.blocks(matrix);
            let same = |(other, of): &(Args, Blocks)| {
                (other.bits, other.symmetric, *of) == (args.bits, args.symmetric, blocks)
            };
            if blocks.fit(scale.shape) && !found.iter().any(same) {
                found.push((*args, blocks));
            }
        }
        if found.len() > 1 {
            let has_zeros = module.find("weight_zero_point").is_some();
            found.retain(|(args, _)| args.is_float || args.symmetric != has_zeros);
        }
        match found[..] {
            [one] => Ok(one),
            [] => Err(module.refusal(&format!(
                "no group of `config_groups` fits a matrix of {matrix:?} with scales of {:?}",
                scale.shape
            ))),
            _ => Err(module.refusal("several groups of `config_groups` fit it")),
        }
    }
}

/// How a weight is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoredFormat {
    /// `weight` in E4M3.
    Fp8,
    /// `weight` in integers of a byte.
    Int,
    /// `weight_packed` in words of integers.
    PackedInt,
    /// `weight_packed` in bytes of two floats.
    Fp4,
}

impl StoredFormat {
    /// That of a module, if its weight is quantised.
    fn of(module: &Module<'_>) -> Option<Self> {
        let dtype = |leaf| module.find(leaf).map(|raw| raw.dtype);
        match (dtype("weight_packed"), dtype("weight")) {
            (Some(Dtype::I32), _) => Some(Self::PackedInt),
            (Some(Dtype::U8), _) => Some(Self::Fp4),
            (None, Some(Dtype::F8_E4M3)) => Some(Self::Fp8),
            (None, Some(Dtype::I8)) => Some(Self::Int),
            _ => None,
        }
    }

    /// The last part of the name of its numbers.
    fn leaf(self) -> &'static str {
        match self {
            Self::Fp8 | Self::Int => "weight",
            Self::PackedInt | Self::Fp4 => "weight_packed",
        }
    }

    /// Whether a tensor belongs to the numbers.
    fn owns(self, leaf: &str) -> bool {
        let integers = ["weight_shape", "weight_zero_point", "weight_g_idx"];
        leaf == "weight_scale"
            || match self {
                Self::Fp8 => false,
                Self::Int => leaf == "weight_zero_point",
                Self::PackedInt => integers.contains(&leaf),
                Self::Fp4 => leaf == "weight_global_scale",
            }
    }
}

impl CompressedTensors {
    /// Rows and columns of a module's matrix.
    fn matrix(&self, module: &Module<'_>, kind: StoredFormat) -> Result<[usize; 2], WeightsError> {
        match kind {
            StoredFormat::Fp8 | StoredFormat::Int => module.matrix("weight"),
            StoredFormat::Fp4 => nvfp4::matrix(module, "weight_packed"),
            StoredFormat::PackedInt => ints::packed_matrix(module, |[_, columns], words| {
                self.groups.iter().any(|args| !args.is_float && ints::fills(*columns, args.bits, words))
            }),
        }
    }
}

impl Format for CompressedTensors {
    fn role(&self, module: &Module<'_>, leaf: &str) -> Result<Role, WeightsError> {
        let kind = StoredFormat::of(module);
        match kind {
            Some(kind) if kind.leaf() == leaf => {
                module.tensor("weight_scale")?;
                Ok(Role::Packed { name: module.named("weight"), shape: self.matrix(module, kind)?.to_vec() })
            }
            Some(kind) if kind.owns(leaf) => Ok(Role::Companion),
            _ => Ok(unheeded::role(module, leaf).unwrap_or(Role::Stored)),
        }
    }

    fn open<'a>(&self, module: &Module<'a>, leaf: &str) -> Result<Box<dyn Rows + 'a>, WeightsError> {
        let missing = || WeightsError::Missing(vec![module.named(leaf)]);
        let kind = StoredFormat::of(module).ok_or_else(missing)?;
        let matrix = self.matrix(module, kind)?;
        let words = module.matrix(kind.leaf())?[1];
        let (args, blocks) = self.group_of(module, matrix, |args| match kind {
            StoredFormat::Fp8 => args.is_float && args.bits == 8,
            StoredFormat::Fp4 => args.is_float && args.bits == 4,
            StoredFormat::Int => !args.is_float,
            StoredFormat::PackedInt => !args.is_float && ints::fills(matrix[1], args.bits, words),
        })?;
        let ints = |is_packed| {
            let Args { bits, symmetric, .. } = args;
            Ints { bits, is_packed, symmetric, rounding: rounding(module)? }.rows(module, blocks)
        };
        match kind {
            StoredFormat::Fp8 => {
                let scales = Scales::read(module, "weight_scale", blocks)?;
                Ok(fp8::rows(module.tensor("weight")?, matrix, scales, rounding(module)?))
            }
            StoredFormat::Fp4 => {
                nvfp4::rows(module, "weight_packed", Global::Divides("weight_global_scale"), Rounding::Bf16)
            }
            StoredFormat::Int => ints(false),
            StoredFormat::PackedInt => ints(true),
        }
    }
}

/// The type in which a module's weight is multiplied with its scales.
fn rounding(module: &Module<'_>) -> Result<Rounding, WeightsError> {
    let dtype = module.tensor("weight_scale")?.dtype;
    Rounding::of(dtype).ok_or_else(|| module.refusal(&format!("weight_scale is of type {dtype:?}")))
}
