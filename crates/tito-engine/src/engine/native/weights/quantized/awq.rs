//! Checkpoints of `AutoAWQ`: `quant_method` awq, version gemm, four bits.
//!
//! `X.qweight` of [inputs, outputs / 8] and `X.qzeros` of [groups, outputs / 8] have eight outputs in a 32-bit word, in the
//! order of [`ORDER`]; `X.scales` is [groups, outputs]. A weight is its number less the zero-point, times the scale, rounded
//! to the type of the scales: `dequantize_gemm` in `AutoAWQ`'s `utils/packing_utils.py`.

use super::{
    Format, Role, Unpack, Widened,
    gptq::{self, OF_THE_MAKER, group_size},
    module::Module,
    numbers::words_of,
    scales::Rounding,
    section::Section,
};
use crate::engine::native::weights::{Rows, WeightsError};

/// The place of each of eight outputs in a word, in halves of bytes from the lowest on.
const ORDER: [u32; 8] = [0, 4, 1, 5, 2, 6, 3, 7];
const OUTPUTS: usize = ORDER.len();

/// The numbers of a matrix, eight outputs in a word.
struct AwqRows {
    words: Vec<u32>,
    zeros: Vec<u32>,
    /// For each group, those of all outputs.
    scales: Vec<f32>,
    outputs: usize,
    inputs: usize,
    /// Inputs of a group.
    group: usize,
    rounding: Rounding,
}

/// The number of an output, of a row of words.
fn unpacked(words: &[u32], row: usize, output: usize, outputs: usize) -> f32 {
    let word = words[row * (outputs / OUTPUTS) + output / OUTPUTS];
    let code = word >> (4 * ORDER[output % OUTPUTS]) & 0xf;
    f32::from(code.to_le_bytes()[0])
}

impl Unpack for AwqRows {
    fn row(&self, row: usize, _: &[u8], out: &mut Vec<f32>) {
        out.extend((0..self.inputs).map(|input| {
            let group = input / self.group;
            let number = unpacked(&self.words, input, row, self.outputs);
            let zero = unpacked(&self.zeros, group, row, self.outputs);
            self.rounding.round((number - zero) * self.scales[group * self.outputs + row])
        }));
    }
}

/// The format, as `quantization_config` describes it.
pub(super) struct Awq {
    /// Inputs of a group; `None` for all of them.
    group: Option<usize>,
}

/// Settings of how a checkpoint was made, or of the programs that read it, beside those of GPTQ: transformers and `GPTQModel`
/// write theirs for both.
const OF_THE_MAKER_OF_AWQ: [&str; 4] = [
    "do_fuse",
    "fuse_max_seq_len",
    "modules_to_fuse",
    // The names of the tensors say it again.
    "modules_to_not_convert",
];

/// The one of two spellings that is there: the first is of transformers, the second one of `AutoAWQ` itself.
fn spelling<'k>(config: &Section<'_>, [ours, theirs]: [&'k str; 2]) -> Result<&'k str, String> {
    match (config.value(ours), config.value(theirs)) {
        (Some(one), Some(other)) if one != other => {
            Err(config.refusal(theirs, &format!("is another value than that of `{ours}`")))
        }
        (None, Some(_)) => Ok(theirs),
        _ => Ok(ours),
    }
}

impl Awq {
    pub(super) fn read(config: &Section<'_>) -> Result<Self, String> {
        let read = [
            "quant_method",
            "method",
            "bits",
            "w_bit",
            "group_size",
            "q_group_size",
            "zero_point",
            "version",
            "format",
            "checkpoint_format",
            "pack_dtype",
        ];
        config.knows_only(&[&read[..], &OF_THE_MAKER, &OF_THE_MAKER_OF_AWQ].concat())?;
        config.is_one_of("method", &["awq"])?;
        let bits = spelling(config, ["bits", "w_bit"])?;
        if config.get::<u32>(bits)?.is_some_and(|bits| bits != 4) {
            return Err(config.refusal(bits, "is not supported; 4 is"));
        }
        if config.get::<bool>("zero_point")? == Some(false) {
            return Err(config.refusal("zero_point", "is not supported"));
        }
        for key in ["version", "format", "checkpoint_format"] {
            config.is_one_of(key, &["gemm"])?;
        }
        config.is_one_of("pack_dtype", &["int32"])?;
        Ok(Self { group: group_size(config, spelling(config, ["group_size", "q_group_size"])?)? })
    }

    /// Outputs and inputs of a module's matrix.
    fn matrix(module: &Module<'_>) -> Result<[usize; 2], WeightsError> {
        let [inputs, words] = module.matrix("qweight")?;
        Ok([words.checked_mul(OUTPUTS).ok_or(WeightsError::NoRoom)?, inputs])
    }
}

impl Format for Awq {
    fn role(&self, module: &Module<'_>, leaf: &str) -> Result<Role, WeightsError> {
        gptq::role(module, leaf, || Self::matrix(module))
    }

    fn open<'a>(&self, module: &Module<'a>, _: &str) -> Result<Box<dyn Rows + 'a>, WeightsError> {
        let [outputs, inputs] = Self::matrix(module)?;
        let group = self.group.unwrap_or(inputs).max(1);
        let groups = inputs.div_ceil(group);
        let (scales, rounding) = gptq::scales(module, groups, outputs)?;
        if module.matrix("qzeros")? != [groups, outputs / OUTPUTS] {
            return Err(module.refusal(&format!("qzeros has another shape than {groups} groups of {outputs} outputs")));
        }
        let unpack = Box::new(AwqRows {
            words: words_of(module, "qweight")?,
            zeros: words_of(module, "qzeros")?,
            scales,
            outputs,
            inputs,
            group,
            rounding,
        });
        Ok(Box::new(Widened { packed: None, rows: outputs, columns: inputs, row_bytes: 0, unpack }))
    }
}
