//! Keys and values of one layer, in blocks that are packed like weights.
//!
//! A block holds [`BLOCK_TOKENS`] tokens. Its keys are a packed matrix whose columns are the tokens, its values one
//! whose columns are the numbers of a head, so that attention is made of the same products as everything else.

use super::{
    KernelSet, LANES, Precision,
    instructions::Vectorized,
    packed::rounded,
    pages::{LINE, Stored, prefetch_line},
    parts::Parts,
};
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
    pub(super) fn write(
        &mut self,
        set: KernelSet,
        layout: KvLayout,
        slot: usize,
        (keys, values): (&[f32], &[f32]),
    ) -> bool {
        assert!(slot < BLOCK_TOKENS, "a block has {BLOCK_TOKENS} slots");
        assert_eq!((keys.len(), values.len()), (layout.heads * layout.head_dim, layout.heads * layout.head_dim));
        match self {
            Self::Bf16(numbers) => set.vectorize(WriteToken { numbers, layout, slot, keys, values }),
            Self::F32(numbers) => set.vectorize(WriteToken { numbers, layout, slot, keys, values }),
        }
    }
}

/// A number as a cache stores it.
trait Cached: Copy + Default {
    /// So many of them are neighbours in a lane.
    const NEIGHBOURS: usize;
    /// What is larger than this is not finite.
    const LARGEST: f32;

    fn of(number: f32) -> Self;
}

impl Cached for u16 {
    const NEIGHBOURS: usize = 2;
    const LARGEST: f32 = LARGEST_IN_BF16;

    #[inline(always)]
    fn of(number: f32) -> Self {
        rounded(number)
    }
}

impl Cached for f32 {
    const NEIGHBOURS: usize = 1;
    const LARGEST: f32 = Self::MAX;

    #[inline(always)]
    fn of(number: f32) -> Self {
        number
    }
}

/// Writes a token into its slot of a block.
struct WriteToken<'a, T> {
    numbers: &'a mut [T],
    layout: KvLayout,
    slot: usize,
    keys: &'a [f32],
    values: &'a [f32],
}

impl<T: Cached> Vectorized for WriteToken<'_, T> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Self { numbers, layout, slot, keys, values } = self;
        let heads = keys.chunks_exact(layout.head_dim).zip(values.chunks_exact(layout.head_dim));
        for (head, (key, value)) in heads.enumerate() {
            let (keys, values) = layout.offsets(0, head);
            // Sixteen tokens have their keys side by side.
            let side = keys + slot / LANES * LANES * layout.key_depth();
            write_key(&mut numbers[side..][..LANES * layout.key_depth()], slot % LANES, key);
            write_value(&mut numbers[values..][..BLOCK_TOKENS * layout.value_width()], slot, value);
        }
        keys.iter().chain(values).fold(true, |finite, number| finite & (number.abs() <= T::LARGEST))
    }
}

/// Writes a key into its lane of sixteen keys. Of a lane, each [`Cached::NEIGHBOURS`] numbers are side by side.
#[inline(always)]
fn write_key<T: Cached>(side: &mut [T], lane: usize, key: &[f32]) {
    let of_a_place = LANES * T::NEIGHBOURS;
    let places = side.chunks_mut(LANES * LANES);
    for (numbers, places) in key.chunks(LANES).zip(places) {
        let stored = stored::<T>(numbers);
        let neighbours = stored[..numbers.len()].chunks(T::NEIGHBOURS);
        for (neighbours, place) in neighbours.zip(places.chunks_exact_mut(of_a_place)) {
            place[lane * T::NEIGHBOURS..][..neighbours.len()].copy_from_slice(neighbours);
        }
    }
}

/// Writes a value into its row of a block of tokens. Each [`Cached::NEIGHBOURS`] tokens have theirs side by side.
#[inline(always)]
fn write_value<T: Cached>(block: &mut [T], slot: usize, value: &[f32]) {
    let of_a_row = LANES * T::NEIGHBOURS;
    for (numbers, lanes) in value.chunks(LANES).zip(block.chunks_exact_mut(LANES * BLOCK_TOKENS)) {
        let stored = stored::<T>(numbers);
        let row = &mut lanes[slot / T::NEIGHBOURS * of_a_row..][..of_a_row];
        for (number, place) in stored[..numbers.len()].iter().zip(row.chunks_exact_mut(T::NEIGHBOURS)) {
            place[slot % T::NEIGHBOURS] = *number;
        }
    }
}

/// Up to sixteen numbers as they are stored. A loop: closures of arrays are not always compiled for a set's instructions.
#[inline(always)]
fn stored<T: Cached>(numbers: &[f32]) -> [T; LANES] {
    let mut stored = [T::default(); LANES];
    for (stored, number) in stored.iter_mut().zip(numbers) {
        *stored = T::of(*number);
    }
    stored
}

/// Has the lines fetched that a token's numbers go into: sixteen keys side by side, and a row of each sixteen lanes.
fn prefetch_token<T: Cached>(numbers: &Parts<'_, T>, layout: KvLayout, block: u32, slot: usize) {
    let side = LANES * layout.key_depth();
    for head in 0..layout.heads {
        let (keys, values) = layout.offsets(block, head);
        let keys = keys + slot / LANES * side;
        let row = values + slot / T::NEIGHBOURS * T::NEIGHBOURS * LANES;
        let lines = (keys..keys + side).step_by(LINE / size_of::<T>());
        let rows = (row..values + BLOCK_TOKENS * layout.value_width()).step_by(BLOCK_TOKENS * LANES);
        lines.chain(rows).for_each(|place| prefetch_line(numbers.address(place).cast_const().cast()));
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

    /// Has the lines fetched that one token's numbers go into, while another token's are written.
    pub(super) fn prefetch(&self, layout: KvLayout, block: u32, slot: usize) {
        match self {
            Self::Bf16(numbers) => prefetch_token(numbers, layout, block, slot),
            Self::F32(numbers) => prefetch_token(numbers, layout, block, slot),
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

    /// Where a number of a head lies in the block: 16 tokens have their keys side by side, 16 numbers of a head their values,
    /// and in bf16 two neighbours lie together.
    fn place(layout: KvLayout, slot: usize, head: usize, number: usize, is_value: bool) -> usize {
        let (keys, values) = layout.offsets(0, head);
        let (start, lane, depth, len) = if is_value {
            (values + number / LANES * LANES * BLOCK_TOKENS, number % LANES, slot, BLOCK_TOKENS)
        } else {
            (keys + slot / LANES * LANES * layout.key_depth(), slot % LANES, number, layout.key_depth())
        };
        let together = if layout.precision == Precision::Bf16 { 2 } else { 1 };
        assert!(depth < len);
        start + depth / together * together * LANES + lane * together + depth % together
    }

    #[test]
    fn a_token_is_written_into_its_slot_and_nowhere_else() {
        for (set, precision) in
            KernelSet::available().into_iter().flat_map(|set| [(set, Precision::Bf16), (set, Precision::F32)])
        {
            for (heads, head_dim) in [(1, 2), (3, 64), (2, 33), (1, 16), (2, 80)] {
                let layout = KvLayout { heads, head_dim, precision };
                for slot in [0, 1, 15, 16, 31] {
                    let mut store = KvStore::new(layout, 1).unwrap();
                    let numbers: Vec<f32> = (1_u16..).take(2 * heads * head_dim).map(f32::from).collect();
                    let (keys, values) = numbers.split_at(heads * head_dim);
                    assert!(store.block_mut(0).write(set, layout, slot, (keys, values)));
                    let mut expected = vec![0.0; layout.block_len()];
                    for (is_value, numbers) in [(false, keys), (true, values)] {
                        for (index, number) in numbers.iter().enumerate() {
                            let rounded = if precision == Precision::Bf16 {
                                half::bf16::from_f32(*number).to_f32()
                            } else {
                                *number
                            };
                            expected[place(layout, slot, index / head_dim, index % head_dim, is_value)] = rounded;
                        }
                    }
                    let slice = store.numbers.slice(0..layout.block_len());
                    let found: Vec<f32> = (0..layout.block_len()).map(|index| slice.get(index)).collect();
                    assert!(found == expected, "{heads} heads of {head_dim}, slot {slot}, {precision:?}");
                }
            }
        }
    }

    #[test]
    fn numbers_that_are_not_finite_once_they_are_stored_are_told() {
        let set = KernelSet::PORTABLE;
        let next = f32::from_bits(LARGEST_IN_BF16.to_bits() + 1);
        for (precision, largest) in [(Precision::Bf16, LARGEST_IN_BF16), (Precision::F32, f32::MAX)] {
            let layout = KvLayout { heads: 1, head_dim: 2, precision };
            let mut store = KvStore::new(layout, 1).unwrap();
            let mut block = store.block_mut(0);
            assert!(block.write(set, layout, 0, (&[largest, 0.0], &[-largest, 1.0])));
            for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                assert!(!block.write(set, layout, 0, (&[0.0, broken], &[0.0; 2])));
                assert!(!block.write(set, layout, 0, (&[0.0; 2], &[broken, 0.0])));
            }
            assert_eq!(block.write(set, layout, 0, (&[next, 0.0], &[0.0; 2])), precision == Precision::F32);
        }
    }
}
