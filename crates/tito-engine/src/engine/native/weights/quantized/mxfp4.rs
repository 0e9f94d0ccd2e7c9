//! Experts in MXFP4, as gpt-oss publishes them: `quant_method` mxfp4.
//!
//! A projection of all experts of a layer, `mlp.experts.gate_up_proj` or `mlp.experts.down_proj`, is two tensors of bytes:
//! `…_blocks` of [experts, outputs, groups, 16] has two numbers in E2M1 a byte, the lower half first, and `…_scales` of
//! [experts, outputs, groups] a power of two for the 32 numbers of a group: two to the power of the byte less 127. A weight
//! is its number times that power.
//!
//! It is presented as transformers has it once it is widened (`convert_moe_packed_tensors` in `integrations/mxfp4.py`), and
//! as trainers send it: under the plain name, without `.weight`, with the shape [experts, inputs, outputs], which is to say
//! transposed. A row is all of an expert, and its inputs are `32 * groups`. Everything else, such as the biases of the
//! experts, is stored in bf16.

use std::ops::Range;

use safetensors::Dtype;

use super::{Format, Role, module::Module, section::Section};
use crate::engine::native::weights::{Code, CodedRows, Codes, E2M1, Rows, WeightsError, safetensors::RawTensor};

/// The bytes of a group, and its numbers.
const GROUP_BYTES: usize = 16;
const GROUP: usize = 2 * GROUP_BYTES;

/// The ends of the names of a projection's tensors.
const BLOCKS: &str = "_blocks";
const SCALES: &str = "_scales";

/// The experts of a projection.
struct Projection<'a> {
    blocks: RawTensor<'a>,
    /// The bytes of all scales.
    scales: Vec<u8>,
    experts: usize,
    outputs: usize,
    groups: usize,
}

impl Projection<'_> {
    /// The bytes of all groups of an output of an expert.
    fn output_bytes(&self) -> usize {
        self.groups * GROUP_BYTES
    }

    /// The scales of an expert.
    fn scales_of(&self, expert: usize) -> &[u8] {
        let count = self.outputs * self.groups;
        &self.scales[expert * count..][..count]
    }

    /// Appends the numbers of an expert, inputs by outputs.
    fn widen(&self, scales: &[u8], blocks: &[u8], out: &mut Vec<f32>) {
        for input in 0..self.groups * GROUP {
            let (group, byte) = (input / GROUP, input % GROUP / 2);
            for output in 0..self.outputs {
                let place = output * self.groups + group;
                let two = blocks[place * GROUP_BYTES + byte];
                let number = if input % 2 == 0 { two & 0xf } else { two >> 4 };
                out.push(scaled(E2M1[usize::from(number)], scales[place]));
            }
        }
    }
}

impl Rows for Projection<'_> {
    fn rows(&self) -> usize {
        self.experts
    }

    fn columns(&self) -> usize {
        self.outputs * self.groups * GROUP
    }

    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        out.try_reserve(rows.len().saturating_mul(Rows::columns(self))).map_err(|_| WeightsError::NoRoom)?;
        let expert_bytes = self.outputs * self.output_bytes();
        for expert in rows {
            let blocks = self.blocks.read(expert * expert_bytes..(expert + 1) * expert_bytes)?;
            self.widen(self.scales_of(expert), &blocks, out);
        }
        Ok(())
    }

    fn coded(&self) -> Option<&dyn CodedRows> {
        // f32 does not hold the power of the greatest scale, only most of its products.
        (!self.scales.contains(&u8::MAX)).then_some(self)
    }
}

impl CodedRows for Projection<'_> {
    fn code(&self) -> Code {
        Code::E2m1
    }

    fn rows(&self) -> usize {
        self.experts * self.outputs
    }

    fn columns(&self) -> usize {
        self.groups * GROUP
    }

    fn group(&self) -> usize {
        GROUP
    }

    fn is_rounded(&self) -> bool {
        false
    }

    fn read(&self, rows: Range<usize>) -> Result<Codes, WeightsError> {
        let bytes = self.blocks.read(rows.start * self.output_bytes()..rows.end * self.output_bytes())?;
        let codes = bytes.iter().flat_map(|two| [two & 0xf, two >> 4]).collect();
        let scales = self.scales[rows.start * self.groups..rows.end * self.groups].iter();
        Ok(Codes { codes, scales: scales.map(|scale| scaled(1.0, *scale)).collect() })
    }
}

/// A number times the power that a scale stands for; what f32 holds of it, though it does not hold every such power.
fn scaled(number: f32, scale: u8) -> f32 {
    match scale {
        0 => number * 0.5 * f32::MIN_POSITIVE,
        u8::MAX => number * 2.0 * f32::from_bits(254 << 23),
        _ => number * f32::from_bits(u32::from(scale) << 23),
    }
}

/// The format, as `quantization_config` describes it.
pub(super) struct Mxfp4;

impl Mxfp4 {
    pub(super) fn read(config: &Section<'_>) -> Result<Self, String> {
        // The list of modules says again what the names of the tensors say; `dequantize` is how transformers is to load.
        config.knows_only(&["quant_method", "modules_to_not_convert", "dequantize"])?;
        Ok(Self)
    }

    /// Experts, outputs and groups of a projection.
    fn shape(module: &Module<'_>, projection: &str) -> Result<[usize; 3], WeightsError> {
        let name = || module.named(projection);
        let (blocks, scales) =
            (module.tensor(&format!("{projection}{BLOCKS}"))?, module.tensor(&format!("{projection}{SCALES}"))?);
        match *blocks.shape {
            [experts, outputs, groups, GROUP_BYTES]
                if *scales.shape == [experts, outputs, groups]
                    && blocks.dtype == Dtype::U8
                    && scales.dtype == Dtype::U8 =>
            {
                Ok([experts, outputs, groups])
            }
            _ => Err(WeightsError::Packed {
                name: name(),
                reason: format!(
                    "its blocks are {:?} of {:?}, and its scales {:?} of {:?}",
                    blocks.shape, blocks.dtype, scales.shape, scales.dtype
                ),
            }),
        }
    }
}

impl Format for Mxfp4 {
    fn role(&self, module: &Module<'_>, leaf: &str) -> Result<Role, WeightsError> {
        if let Some(projection) = leaf.strip_suffix(BLOCKS) {
            let [experts, outputs, groups] = Self::shape(module, projection)?;
            let inputs = groups.checked_mul(GROUP).ok_or(WeightsError::NoRoom)?;
            return Ok(Role::Packed { name: module.named(projection), shape: vec![experts, inputs, outputs] });
        }
        let blocks_of = |projection: &str| module.find(&format!("{projection}{BLOCKS}"));
        Ok(match leaf.strip_suffix(SCALES) {
            Some(projection) if blocks_of(projection).is_some() => Role::Companion,
            _ => Role::Stored,
        })
    }

    fn open<'a>(&self, module: &Module<'a>, projection: &str) -> Result<Box<dyn Rows + 'a>, WeightsError> {
        let [experts, outputs, groups] = Self::shape(module, projection)?;
        let blocks = module.tensor(&format!("{projection}{BLOCKS}"))?;
        let scales = module.tensor(&format!("{projection}{SCALES}"))?;
        let scales = scales.read(0..scales.length)?;
        Ok(Box::new(Projection { blocks, scales, experts, outputs, groups }))
    }
}
