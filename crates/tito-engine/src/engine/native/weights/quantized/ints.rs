//! Integers of compressed-tensors, formats `pack-quantized` and `int-quantized`.
//!
//! Packed, `X.weight_packed` has the numbers of a row one after the other in 32-bit words, from the lowest bits on, each with
//! half of the range added so that none is negative; `X.weight_shape` says how many a row has. Else `X.weight` has one in
//! each byte. A weight is its number, less the zero-point of its group if there is one, times the scale of its group,
//! rounded to the type of the scales: `PackedQuantizationCompressor` and `NaiveQuantizationCompressor` of compressed-tensors.
//! Zero-points are packed in the same way along the rows, or are bytes.
//!
//! Groups are so many columns, unless `X.weight_g_idx` says which group a column belongs to, as releases before 0.20 wrote
//! it for activation ordering; those releases sorted the columns by it first, which comes to the same.

use safetensors::Dtype;

use super::{
    Unpack, Widened,
    groups::{in_order, of_index},
    module::Module,
    numbers::words_of,
    scales::{Blocks, Rounding, Scales},
};
use crate::engine::native::weights::{Rows, WeightsError, safetensors::RawTensor};

/// Sizes of numbers that words are made up of without a rest.
pub(super) const BITS: [u32; 3] = [2, 4, 8];

/// How the numbers of a row are stored.
#[derive(Clone, Copy)]
enum Layout {
    /// One in each byte, with a sign.
    Bytes,
    /// So many bits each.
    Packed(u32),
}

/// Rows of integers.
struct IntRows {
    layout: Layout,
    columns: usize,
    scales: Scales,
    zeros: Option<Scales>,
    /// The group of each column.
    groups: Vec<usize>,
    rounding: Rounding,
}

/// A number of a row, or a zero-point, of those that are packed.
fn unpacked(packed: &[u8], place: usize, bits: u32) -> f32 {
    let in_byte = (8 / bits) as usize;
    let code = packed[place / in_byte] >> (place % in_byte * bits as usize) & (u8::MAX >> (8 - bits));
    f32::from(code) - f32::from(1_u8 << (bits - 1))
}

impl Unpack for IntRows {
    fn row(&self, row: usize, packed: &[u8], out: &mut Vec<f32>) {
        let scales = self.scales.of_row(row);
        let zeros = self.zeros.as_ref().map(|zeros| zeros.of_row(row));
        out.extend((0..self.columns).map(|column| {
            let number = match self.layout {
                Layout::Bytes => f32::from(packed[column].cast_signed()),
                Layout::Packed(bits) => unpacked(packed, column, bits),
            };
            let group = self.groups[column];
            self.rounding.round((number - zeros.map_or(0.0, |zeros| zeros[group])) * scales[group])
        }));
    }
}

/// Rows and columns of a packed matrix: what `weight_shape` says, as far as it has room for it.
pub(super) fn packed_matrix(
    module: &Module<'_>,
    bits: impl Fn(&[usize; 2], usize) -> bool,
) -> Result<[usize; 2], WeightsError> {
    let [rows, words] = module.matrix("weight_packed")?;
    let said = module.tensor("weight_shape")?;
    let is_pair = said.dtype == Dtype::I64 && *said.shape == [2];
    let bytes = if is_pair { said.read(0..said.length)? } else { Vec::new() };
    let sides: Vec<usize> =
        bytes.as_chunks::<8>().0.iter().filter_map(|side| usize::try_from(i64::from_le_bytes(*side)).ok()).collect();
    match sides[..] {
        [first, columns] if first == rows && bits(&[rows, columns], words) => Ok([rows, columns]),
        _ => Err(module.refusal(&format!("weight_shape says {sides:?} of {rows} rows of {words} words"))),
    }
}

/// Whether so many words are what a row of numbers of this size takes.
pub(super) fn fills(columns: usize, bits: u32, words: usize) -> bool {
    columns.checked_mul(bits as usize).is_some_and(|bits| bits.div_ceil(32) == words)
}

/// What rows of integers are read with.
pub(super) struct Ints {
    pub(super) bits: u32,
    pub(super) is_packed: bool,
    pub(super) symmetric: bool,
    pub(super) rounding: Rounding,
}

impl Ints {
    /// The rows of a module's matrix.
    pub(super) fn rows<'a>(&self, module: &Module<'a>, blocks: Blocks) -> Result<Box<dyn Rows + 'a>, WeightsError> {
        let weight: RawTensor<'a> = module.tensor(if self.is_packed { "weight_packed" } else { "weight" })?;
        let expected = if self.is_packed { Dtype::I32 } else { Dtype::I8 };
        if weight.dtype != expected {
            return Err(module.refusal(&format!("its numbers are of type {:?}, not {expected:?}", weight.dtype)));
        }
        let [rows, columns] = blocks.matrix;
        let scales = Scales::read(module, "weight_scale", blocks)?;
        let [_, across] = blocks.grid();
        let size = scales.width();
        let groups = of_index(module, "weight_g_idx", columns, across)?;
        if let Some(groups) = &groups
            && (0..across).any(|group| groups.iter().filter(|of| **of == group).count() != size)
        {
            return Err(module.refusal(&format!("weight_g_idx does not give each group {size} columns")));
        }
        let unpack = Box::new(IntRows {
            layout: if self.is_packed { Layout::Packed(self.bits) } else { Layout::Bytes },
            columns,
            scales,
            zeros: self.zeros(module, blocks)?,
            groups: groups.unwrap_or_else(|| in_order(columns, size)),
            rounding: self.rounding,
        });
        Ok(Box::new(Widened { packed: Some(weight), rows, columns, row_bytes: weight.length / rows.max(1), unpack }))
    }

    /// The zero-point of each block.
    fn zeros(&self, module: &Module<'_>, blocks: Blocks) -> Result<Option<Scales>, WeightsError> {
        const LEAF: &str = "weight_zero_point";
        let given = module.find(LEAF);
        if self.symmetric != given.is_none() {
            let has = if given.is_some() { "has" } else { "lacks" };
            return Err(module.refusal(&format!("it {has} zero-points, and the config says otherwise")));
        }
        let Some(raw) = given else { return Ok(None) };
        let [down, across] = blocks.grid();
        let numbers = match (raw.dtype, raw.shape) {
            (Dtype::I8, shape) if blocks.fit(shape) => {
                raw.read(0..raw.length)?.into_iter().map(|byte| f32::from(byte.cast_signed())).collect()
            }
            (Dtype::I32, shape) if self.is_packed && *shape == [(down * self.bits as usize).div_ceil(32), across] => {
                let words = words_of(module, LEAF)?;
                let in_word = (32 / self.bits) as usize;
                let place = |place: usize| (place / across, place % across);
                let numbers = (0..down * across).map(place).map(|(row, group)| {
                    let word = words[row / in_word * across + group].to_le_bytes();
                    unpacked(&word, row % in_word, self.bits)
                });
                numbers.collect()
            }
            (dtype, shape) => return Err(module.refusal(&format!("{LEAF} is {shape:?} of {dtype:?}"))),
        };
        Ok(Some(Scales::of(numbers, blocks)))
    }
}
