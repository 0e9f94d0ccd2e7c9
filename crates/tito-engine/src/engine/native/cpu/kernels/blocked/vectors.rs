//! Blocks widened in vectors of 16 rows, whatever the instruction set: into memory, or to be multiplied at once.
//!
//! A number that is not 0 is a multiple of the least half float, so that none is too small for any way to round. A product of
//! a code and a scale is exact, so that it may be fused with the sum.
//!
//! Without optimisation, what is inlined keeps room on the stack for all that it computes, so that the largest functions are
//! not inlined then.
//!
//! Arrays are written out instead of mapped: what is compiled apart, as a closure in `map` may be, lacks the instructions, and
//! then calls a function for each of them.

use super::{
    super::{
        LANES,
        few::{FewRows, FewVector, SideBySide, Sink},
        pages::LINE,
    },
    block::{Block, Layout, STEP, WORD, step_bytes},
};

/// What blocks need of an instruction set beside products with few rows.
///
/// # Safety
/// As of [`FewVector`].
pub(super) trait Widening: FewVector {
    /// A word of each row.
    type Words: Copy;
    /// Scales and minima of each row.
    type Factors: Copy;

    /// Reads 16 half floats.
    unsafe fn halves(from: *const u8) -> Self;
    /// Numbers times 16 integers of 8 bits.
    unsafe fn times_bytes(self, from: *const u8) -> Self;
    /// Reads both words of a step of codes of `B` bits.
    unsafe fn words<const B: usize>(step: *const u8) -> [Self::Words; 2];
    /// What the numbers of a group are computed with: its scales, and its minima if it has any.
    unsafe fn factors<const B: usize>(scale: Self, minimum: Self) -> Self::Factors;
    /// The numbers of the codes at a place of the words.
    unsafe fn numbers<const B: usize, const MINIMUM: bool>(
        words: Self::Words,
        place: usize,
        factors: &Self::Factors,
    ) -> Self;
    /// Rounds two inputs to bf16.
    unsafe fn pairs(even: Self, odd: Self) -> Self::Pairs;
    /// Writes 16 pairs.
    unsafe fn store_pairs(pairs: Self::Pairs, to: *mut u16);
    /// Has the line around an address fetched from memory, wherever it is.
    unsafe fn fetch(address: *const u8);
}

/// Work on blocks, compiled for each number of bits of codes, and for numbers with and without something to be added.
pub(super) trait Work {
    /// Does it.
    ///
    /// # Safety
    /// The instructions of `V` are there, and blocks have these codes.
    unsafe fn run<V: Widening, const B: usize, const MINIMUM: bool>(self);
}

/// Does work on blocks of a layout.
///
/// # Safety
/// The instructions of `V` are there.
#[inline(always)]
pub(super) unsafe fn run<V: Widening>(layout: &Layout, work: impl Work) {
    // SAFETY: the caller has the instructions.
    unsafe {
        match (layout.format.bits, layout.format.has_minimum) {
            (4, false) => work.run::<V, 4, false>(),
            (4, true) => work.run::<V, 4, true>(),
            (5, false) => work.run::<V, 5, false>(),
            (5, true) => work.run::<V, 5, true>(),
            (6, false) => work.run::<V, 6, false>(),
            (8, false) => work.run::<V, 8, false>(),
            (bits, has_minimum) => unreachable!("codes of {bits} bits, {has_minimum}"),
        }
    }
}

/// A block in pairs of bf16.
pub(super) struct ToBf16<'a> {
    pub(super) block: Block<'a>,
    /// As many as the block has.
    pub(super) to: &'a mut [u16],
}

impl Work for ToBf16<'_> {
    #[inline(always)]
    unsafe fn run<V: Widening, const B: usize, const MINIMUM: bool>(self) {
        let Self { block, to } = self;
        let pieces = block.bytes.len() / block.layout.piece_bytes;
        assert_eq!(to.len(), pieces * block.layout.format.numbers * LANES, "room for all numbers of the block");
        let mut to = Memory { to: to.as_mut_ptr() };
        // SAFETY: the caller has the instructions and the codes; there is room for all pairs.
        unsafe { widen::<V, _, B, MINIMUM, 1>(&block.layout, [block.bytes.as_ptr()], pieces, &mut to) }
    }
}

/// Blocks that follow each other, times few rows.
pub(super) struct TimesFew<'a> {
    pub(super) layout: Layout,
    /// The bytes of all blocks.
    pub(super) bytes: &'a [u8],
    pub(super) block_bytes: usize,
    pub(super) rows: FewRows<'a>,
}

impl Work for TimesFew<'_> {
    #[inline(always)]
    unsafe fn run<V: Widening, const B: usize, const MINIMUM: bool>(self) {
        let Self { layout, bytes, block_bytes, rows } = self;
        let pieces = block_bytes / layout.piece_bytes;
        // SAFETY: the caller's promises.
        unsafe { rows.times::<V>(&Following::<B, MINIMUM> { layout, bytes, block_bytes, pieces }) }
    }
}

/// Blocks that follow each other, of codes of `B` bits.
struct Following<'a, const B: usize, const MINIMUM: bool> {
    layout: Layout,
    bytes: &'a [u8],
    block_bytes: usize,
    pieces: usize,
}

impl<V: Widening, const B: usize, const MINIMUM: bool> SideBySide<V> for Following<'_, B, MINIMUM> {
    fn count(&self) -> usize {
        self.bytes.len() / self.block_bytes
    }

    fn inputs(&self) -> usize {
        self.pieces * self.layout.format.numbers
    }

    #[inline(always)]
    unsafe fn widen<S: Sink<V>, const BLOCKS: usize>(&self, first: usize, sink: &mut S) {
        // SAFETY: the caller has the instructions and so many blocks, whose codes are such.
        unsafe {
            let mut blocks = [self.bytes.as_ptr(); BLOCKS];
            for (n, bytes) in blocks.iter_mut().enumerate() {
                *bytes = bytes.add((first + n) * self.block_bytes);
            }
            widen::<V, _, B, MINIMUM, BLOCKS>(&self.layout, blocks, self.pieces, sink);
        }
    }
}

/// Memory for the pairs of one block.
struct Memory {
    to: *mut u16,
}

impl<V: Widening> Sink<V> for Memory {
    #[inline(always)]
    unsafe fn put(&mut self, _block: usize, pairs: V::Pairs) {
        // SAFETY: the caller's promise, and whoever made this has room for all pairs.
        unsafe { V::store_pairs(pairs, self.to) };
    }

    #[inline(always)]
    unsafe fn go_on(&mut self) {
        // SAFETY: as above.
        self.to = unsafe { self.to.add(2 * LANES) };
    }
}

/// How many bytes ahead of those that are widened are fetched from memory.
const AHEAD: usize = 4 << 10;

/// Widens blocks side by side, input by input.
///
/// # Safety
/// The instructions of `V` are there, `blocks` are valid for so many pieces of the layout, and the codes are such.
#[cfg_attr(not(unoptimised), inline(always))]
unsafe fn widen<V: Widening, S: Sink<V>, const B: usize, const MINIMUM: bool, const BLOCKS: usize>(
    layout: &Layout,
    mut blocks: [*const u8; BLOCKS],
    pieces: usize,
    sink: &mut S,
) {
    let groups = layout.format.groups();
    let steps = layout.format.group / STEP;
    // SAFETY: the caller's promises; what is read is within a piece.
    unsafe {
        for _ in 0..pieces {
            let mut large = [[V::zero(); 2]; BLOCKS];
            for (large, piece) in large.iter_mut().zip(blocks) {
                *large = [V::halves(piece), if MINIMUM { V::halves(piece.add(2 * LANES)) } else { V::zero() }];
            }
            for group in 0..groups {
                let mut factors = [V::factors::<B>(large[0][0], large[0][1]); BLOCKS];
                for ((factors, piece), [mut scale, mut minimum]) in factors.iter_mut().zip(blocks).zip(large) {
                    if groups > 1 {
                        let small = piece.add(layout.small + group * LANES);
                        scale = scale.times_bytes(small);
                        if MINIMUM {
                            minimum = minimum.times_bytes(small.add(groups * LANES));
                        }
                    }
                    *factors = V::factors::<B>(scale, minimum);
                }
                let first = layout.steps + group * steps * step_bytes(B);
                for step in 0..steps {
                    let at = first + step * step_bytes(B);
                    let mut words = [V::words::<B>(blocks[0].add(at)); BLOCKS];
                    for (words, piece) in words.iter_mut().zip(blocks) {
                        *words = V::words::<B>(piece.add(at));
                        for line in 0..step_bytes(B).div_ceil(LINE) {
                            V::fetch(piece.wrapping_add(at + AHEAD + line * LINE));
                        }
                    }
                    for pair in 0..STEP / 2 {
                        for n in 0..BLOCKS {
                            let (word, place) = (words[n][pair / (WORD / 2)], 2 * (pair % (WORD / 2)));
                            let even = V::numbers::<B, MINIMUM>(word, place, &factors[n]);
                            let odd = V::numbers::<B, MINIMUM>(word, place + 1, &factors[n]);
                            sink.put(n, V::pairs(even, odd));
                        }
                        sink.go_on();
                    }
                }
            }
            for piece in &mut blocks {
                *piece = piece.add(layout.piece_bytes);
            }
        }
    }
}
