//! Checkpoints of GPTQ, as `AutoGPTQ` and `GPTQModel` write them: `quant_method` gptq.
//!
//! `X.qweight` of [inputs * bits / 32, outputs] has the numbers of an output one below the other in 32-bit words, from the
//! lowest bits on; `X.qzeros` of [groups, outputs * bits / 32] has the zero-points of a group likewise beside each other, and
//! `X.scales` of [groups, outputs] its scales. `X.g_idx` says which group an input belongs to. A weight is its number less
//! the zero-point, times the scale, rounded to the type of the scales: `TorchQuantLinear.dequantize_weight` of `GPTQModel`.
//!
//! In files of the format `gptq`, zero-points are one less than they are, in `gptq_v2` they are themselves. Where one would
//! be the largest number and one more, the readers of `gptq` disagree (`GPTQModel` carries into the next zero-point, vLLM
//! goes on above the range), so that such a file is refused.

use safetensors::Dtype;

use super::{
    Format, Role, Unpack, Widened,
    groups::{in_order, of_index},
    module::Module,
    numbers::{numbers_of, words_of},
    scales::Rounding,
    section::Section,
};
use crate::engine::native::weights::{Rows, WeightsError};

/// The numbers of a matrix, one below the other.
struct GptqRows {
    bits: u32,
    words: Vec<u32>,
    outputs: usize,
    /// For each group, those of all outputs.
    scales: Vec<f32>,
    zeros: Vec<f32>,
    /// The group of each input.
    groups: Vec<usize>,
    rounding: Rounding,
}

/// A number of a word.
fn unpacked(word: u32, place: usize, bits: u32) -> f32 {
    let code = word >> (place * bits as usize) & (u32::MAX >> (32 - bits));
    f32::from(code.to_le_bytes()[0])
}

impl Unpack for GptqRows {
    fn row(&self, row: usize, _: &[u8], out: &mut Vec<f32>) {
        let in_word = (32 / self.bits) as usize;
        out.extend(self.groups.iter().enumerate().map(|(input, group)| {
            let number = unpacked(self.words[input / in_word * self.outputs + row], input % in_word, self.bits);
            let place = group * self.outputs + row;
            self.rounding.round((number - self.zeros[place]) * self.scales[place])
        }));
    }
}

/// The format, as `quantization_config` describes it.
pub(super) struct Gptq {
    bits: u32,
    /// Inputs of a group; `None` for all of them.
    group: Option<usize>,
    /// Whether the index may put inputs into other groups than their neighbours.
    desc_act: bool,
    /// Whether zero-points are one less than they are.
    lowered: bool,
}

/// Settings of how a checkpoint was made, or of the programs that read it.
pub(super) const OF_THE_MAKER: [&str; 27] = [
    "act_group_aware",
    "backend",
    "batch_size",
    "block_name_to_quantize",
    "cache_block_outputs",
    "damp_auto_increment",
    "damp_percent",
    "dataset",
    "disable_exllama",
    "exllama_config",
    "lm_head",
    "max_input_length",
    "meta",
    "model_file_base_name",
    "model_name_or_path",
    "model_seqlen",
    "module_name_preceding_first_block",
    "modules_in_block_to_quantize",
    "mse",
    "pad_token_id",
    "static_groups",
    "sym",
    "tokenizer",
    "true_sequential",
    "use_cuda_fp16",
    "use_exllama",
    "version",
];

/// The size of a group under this key, which is -1 for all inputs.
pub(super) fn group_size(config: &Section<'_>, key: &str) -> Result<Option<usize>, String> {
    match config.get::<i64>(key)?.unwrap_or(128) {
        -1 => Ok(None),
        size => match usize::try_from(size) {
            Ok(size) if size > 0 => Ok(Some(size)),
            _ => Err(config.refusal(key, "is not the size of a group")),
        },
    }
}

impl Gptq {
    pub(super) fn read(config: &Section<'_>) -> Result<Self, String> {
        let read =
            ["quant_method", "method", "bits", "group_size", "desc_act", "checkpoint_format", "format", "pack_dtype"];
        config.knows_only(&[&read[..], &OF_THE_MAKER].concat())?;
        // GPTQModel says the method twice since its release 6.
        config.is_one_of("method", &["gptq"])?;
        let bits: u32 = config.require("bits")?;
        if ![2, 4, 8].contains(&bits) {
            return Err(config.refusal("bits", "is not supported; 2, 4 and 8 are"));
        }
        config.is_one_of("pack_dtype", &["int32"])?;
        let key = if config.value("checkpoint_format").is_some() { "checkpoint_format" } else { "format" };
        config.is_one_of(key, &["gptq", "gptq_v2"])?;
        let format: Option<String> = config.get(key)?;
        let lowered = !format.is_some_and(|format| format.eq_ignore_ascii_case("gptq_v2"));
        let desc_act = config.get("desc_act")?.unwrap_or(false);
        Ok(Self { bits, group: group_size(config, "group_size")?, desc_act, lowered })
    }

    /// Outputs and inputs of a module's matrix.
    fn matrix(&self, module: &Module<'_>) -> Result<[usize; 2], WeightsError> {
        let [words, outputs] = module.matrix("qweight")?;
        let inputs = words.checked_mul((32 / self.bits) as usize).ok_or(WeightsError::NoRoom)?;
        Ok([outputs, inputs])
    }

    /// The group of each input.
    fn groups(&self, module: &Module<'_>, inputs: usize, groups: usize) -> Result<Vec<usize>, WeightsError> {
        let in_order = in_order(inputs, self.group.unwrap_or(inputs));
        match of_index(module, "g_idx", inputs, groups)? {
            Some(index) if self.desc_act || index == in_order => Ok(index),
            Some(_) => Err(module.refusal("g_idx orders its inputs, and `desc_act` says that they are not")),
            None if self.desc_act => {
                Err(module.refusal("g_idx is missing, and `desc_act` says that inputs are ordered"))
            }
            None => Ok(in_order),
        }
    }

    /// The zero-points of each group.
    fn zeros(&self, module: &Module<'_>, groups: usize, outputs: usize) -> Result<Vec<f32>, WeightsError> {
        let in_word = (32 / self.bits) as usize;
        let across = outputs.div_ceil(in_word);
        if module.matrix("qzeros")? != [groups, across] {
            return Err(module.refusal(&format!("qzeros has another shape than {groups} by {across}")));
        }
        let words = words_of(module, "qzeros")?;
        let largest = f32::from(u8::MAX >> (8 - self.bits));
        let mut zeros = Vec::with_capacity(groups * outputs);
        for group in words.chunks(across.max(1)) {
            zeros.extend((0..outputs).map(|output| unpacked(group[output / in_word], output % in_word, self.bits)));
        }
        if !self.lowered {
            return Ok(zeros);
        }
        if zeros.iter().any(|zero| zero.total_cmp(&largest).is_eq()) {
            return Err(
                module.refusal("a zero-point of the format gptq is out of range, and its readers disagree on it")
            );
        }
        for zero in &mut zeros {
            *zero += 1.0;
        }
        Ok(zeros)
    }
}

/// Scales of [groups, outputs], and the type in which they multiply.
pub(super) fn scales(module: &Module<'_>, groups: usize, outputs: usize) -> Result<(Vec<f32>, Rounding), WeightsError> {
    let raw = module.tensor("scales")?;
    let rounding = Rounding::of(raw.dtype).filter(|_| *raw.shape == [groups, outputs]);
    let refusal = || {
        let (shape, dtype) = (raw.shape, raw.dtype);
        module.refusal(&format!("its scales are {shape:?} of {dtype:?}, for {groups} groups of {outputs} outputs"))
    };
    let rounding = rounding.ok_or_else(refusal)?;
    Ok((numbers_of(module, "scales")?, rounding))
}

/// What a tensor is of a module whose weight is in `qweight`.
pub(super) fn role(
    module: &Module<'_>,
    leaf: &str,
    matrix: impl Fn() -> Result<[usize; 2], WeightsError>,
) -> Result<Role, WeightsError> {
    let Some(weight) = module.find("qweight") else { return Ok(Role::Stored) };
    match leaf {
        "qweight" if weight.dtype != Dtype::I32 => {
            Err(module.refusal(&format!("qweight is of type {:?}", weight.dtype)))
        }
        "qweight" => Ok(Role::Packed { name: module.named("weight"), shape: matrix()?.to_vec() }),
        "qzeros" | "scales" | "g_idx" => Ok(Role::Companion),
        // `AutoGPTQ` gives every module a bias, and those that have none one of zeros. Zeros may be a model's own, too.
        "bias" => Ok(if module.tensor(leaf)?.is_zero()? { Role::Filler } else { Role::Stored }),
        _ => Ok(Role::Stored),
    }
}

impl Format for Gptq {
    fn role(&self, module: &Module<'_>, leaf: &str) -> Result<Role, WeightsError> {
        role(module, leaf, || self.matrix(module))
    }

    fn open<'a>(&self, module: &Module<'a>, _: &str) -> Result<Box<dyn Rows + 'a>, WeightsError> {
        let [outputs, inputs] = self.matrix(module)?;
        let groups = self.group.map_or(1, |size| inputs.div_ceil(size));
        let (scales, rounding) = scales(module, groups, outputs)?;
        let unpack = Box::new(GptqRows {
            bits: self.bits,
            words: words_of(module, "qweight")?,
            outputs,
            scales,
            zeros: self.zeros(module, groups, outputs)?,
            groups: self.groups(module, inputs, groups)?,
            rounding,
        });
        Ok(Box::new(Widened { packed: None, rows: outputs, columns: inputs, row_bytes: 0, unpack }))
    }
}
