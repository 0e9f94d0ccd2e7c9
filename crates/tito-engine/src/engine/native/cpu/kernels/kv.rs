//! Keys and values of one layer, in blocks that are packed like weights.
//!
//! A block holds [`BLOCK_TOKENS`] tokens. Its keys are a packed matrix whose columns are the tokens, its values one
//! whose columns are the numbers of a head, so that attention is made of the same products as everything else.

use super::{LANES, Precision, packed::rounded, pages::Stored, parts::Parts};
use crate::engine::native::backend::NoRoom;

/// Tokens of a block: as many as a step of bf16 products takes.
pub(crate) const BLOCK_TOKENS: usize = 32;

/// What is larger than this becomes infinite when it is rounded to bf16. It is half a step over the largest bf16, less
/// one bit.
const LARGEST_IN_BF16: f32 = f32::from_bits(0x7f7f_7fff);

/// The shape of a layer's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KvLayout {
    /// Heads of keys and values.
    pub(crate) heads: usize,
    /// Numbers of a head.
    pub(crate) head_dim: usize,
    /// The type of the numbers.
    pub(crate) precision: Precision,
}

impl KvLayout {
    /// `head_dim`, padded for products with queries.
    pub(super) fn key_depth(self) -> usize {
        self.head_dim.next_multiple_of(self.precision.step())
    }

    /// `head_dim`, padded to whole vectors.
    pub(super) fn value_width(self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    fn head_len(self) -> usize {
        BLOCK_TOKENS * (self.key_depth() + self.value_width())
    }

    fn block_len(self) -> usize {
        self.heads * self.head_len()
    }

    /// The memory of a block.
    pub(crate) fn block_bytes(self) -> usize {
        self.block_len() * if self.precision == Precision::Bf16 { 2 } else { 4 }
    }

    /// Where the keys of a head begin, and where its values begin.
    pub(super) fn offsets(self, block: u32, head: usize) -> (usize, usize) {
        let keys = block as usize * self.block_len() + head * self.head_len();
        (keys, keys + BLOCK_TOKENS * self.key_depth())
    }
}

/// The keys and values of one layer. Memory that was never written to is not taken from the system.
#[derive(Debug)]
pub(crate) struct KvStore {
    pub(super) layout: KvLayout,
    pub(super) numbers: Stored,
}

impl KvStore {
    /// Room for `blocks` blocks.
    pub(crate) fn new(layout: KvLayout, blocks: usize) -> Result<Self, NoRoom> {
        let numbers = blocks.checked_mul(layout.block_len()).ok_or(NoRoom)?;
        Ok(Self { layout, numbers: Stored::zeros(layout.precision, numbers)? })
    }

    /// Copies a whole block.
    pub(crate) fn copy(&mut self, from: u32, to: u32) {
        let len = self.layout.block_len();
        let (from, to) = (from as usize * len, to as usize * len);
        match &mut self.numbers {
            Stored::Bf16(numbers) => numbers.copy_within(from..from + len, to),
            Stored::F32(numbers) => numbers.copy_within(from..from + len, to),
        }
    }

    /// The numbers of a block.
    pub(super) fn block_mut(&mut self, block: u32) -> BlockMut<'_> {
        let len = self.layout.block_len();
        let start = block as usize * len;
        match &mut self.numbers {
            Stored::Bf16(numbers) => BlockMut::Bf16(&mut numbers[start..][..len]),
            Stored::F32(numbers) => BlockMut::F32(&mut numbers[start..][..len]),
        }
    }
}

/// The numbers of one block, to be written.
pub(super) enum BlockMut<'a> {
    /// The bits of bfloat16.
    Bf16(&'a mut [u16]),
    /// float32.
    F32(&'a mut [f32]),
}

impl BlockMut<'_> {
    /// Overwrites it with zeros. This is done before its first token is written, since what another sequence left behind is
    /// multiplied with zero and must not be infinite.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Bf16(numbers) => numbers.fill(0),
            Self::F32(numbers) => numbers.fill(0.0),
        }
    }

    /// Writes the key and value of one token, `heads * head_dim` numbers each; `false` if some of them are not finite
    /// as they are stored.
    ///
    /// # Panics
    /// If there is no such slot, or the lengths are others.
    pub(super) fn write(&mut self, layout: KvLayout, slot: usize, keys: &[f32], values: &[f32]) -> bool {
        assert!(slot < BLOCK_TOKENS, "a block has {BLOCK_TOKENS} slots");
        assert_eq!((keys.len(), values.len()), (layout.heads * layout.head_dim, layout.heads * layout.head_dim));
        let largest = if layout.precision == Precision::Bf16 { LARGEST_IN_BF16 } else { f32::MAX };
        let finite = keys.iter().chain(values).all(|number| number.abs() <= largest);
        let heads = keys.chunks_exact(layout.head_dim).zip(values.chunks_exact(layout.head_dim));
        for (head, (key, value)) in heads.enumerate() {
            let (key_start, value_start) = layout.offsets(0, head);
            match self {
                Self::Bf16(numbers) => {
                    let column = key_start + slot / LANES * LANES * layout.key_depth() + 2 * (slot % LANES);
                    for (pair, halves) in key.chunks(2).enumerate() {
                        for (half, number) in halves.iter().enumerate() {
                            numbers[column + pair * 2 * LANES + half] = rounded(*number);
                        }
                    }
                    let row = value_start + slot / 2 * 2 * LANES + slot % 2;
                    for (block, lanes) in value.chunks(LANES).enumerate() {
                        for (lane, number) in lanes.iter().enumerate() {
                            numbers[row + block * LANES * BLOCK_TOKENS + 2 * lane] = rounded(*number);
                        }
                    }
                }
                Self::F32(numbers) => {
                    let column = key_start + slot / LANES * LANES * layout.key_depth() + slot % LANES;
                    for (index, number) in key.iter().enumerate() {
                        numbers[column + index * LANES] = *number;
                    }
                    let row = value_start + slot * LANES;
                    for (block, lanes) in value.chunks(LANES).enumerate() {
                        numbers[row + block * LANES * BLOCK_TOKENS..][..lanes.len()].copy_from_slice(lanes);
                    }
                }
            }
        }
        finite
    }
}

/// The numbers of a cache, of which several threads write different blocks.
pub(super) enum BlockParts<'a> {
    Bf16(Parts<'a, u16>),
    F32(Parts<'a, f32>),
}

impl<'a> BlockParts<'a> {
    pub(super) fn new(store: &'a mut KvStore) -> Self {
        match &mut store.numbers {
            Stored::Bf16(numbers) => Self::Bf16(Parts::new(numbers)),
            Stored::F32(numbers) => Self::F32(Parts::new(numbers)),
        }
    }

    /// The numbers of a block.
    ///
    /// # Safety
    /// Nobody else has this block.
    pub(super) unsafe fn block(&self, layout: KvLayout, block: u32) -> BlockMut<'_> {
        let len = layout.block_len();
        let start = block as usize * len;
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Bf16(numbers) => BlockMut::Bf16(numbers.part(start, len)),
                Self::F32(numbers) => BlockMut::F32(numbers.part(start, len)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_finite_once_they_are_stored_are_told() {
        let next = f32::from_bits(LARGEST_IN_BF16.to_bits() + 1);
        for (precision, largest) in [(Precision::Bf16, LARGEST_IN_BF16), (Precision::F32, f32::MAX)] {
            let layout = KvLayout { heads: 1, head_dim: 2, precision };
            let mut store = KvStore::new(layout, 1).unwrap();
            let mut block = store.block_mut(0);
            assert!(block.write(layout, 0, &[largest, 0.0], &[-largest, 1.0]));
            for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                assert!(!block.write(layout, 0, &[0.0, broken], &[0.0; 2]));
                assert!(!block.write(layout, 0, &[0.0; 2], &[broken, 0.0]));
            }
            assert_eq!(block.write(layout, 0, &[next, 0.0], &[0.0; 2]), precision == Precision::F32);
        }
    }
}
