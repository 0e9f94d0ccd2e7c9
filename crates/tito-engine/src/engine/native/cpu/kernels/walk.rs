//! The walk of a product over its result, for each type of weights and of activations.

use super::{
    LANES,
    ahead::{Ahead, PIECE},
    pages::prefetch_line,
    precision::PAIR,
    raw::Gemm,
    vector::Vector,
};

/// A type of weights, and one step of the walk over the inner dimension with activations of type `A`.
pub(super) trait Weight<V: Vector, A>: Copy {
    /// What a step reads of a block.
    type Lanes: Copy;
    /// What a step reads of a row.
    type Scalar: Copy;
    /// Numbers of a row that a step takes.
    const DEPTH: usize;
    /// Numbers of a row that are summed before their sum joins the others: a long sum rounds each step at its own size.
    const SEGMENT: usize;

    /// Reads the lanes of a step.
    ///
    /// # Safety
    /// The instructions of `V` are there, and so are [`LANES`] times [`Weight::DEPTH`] numbers at `from`.
    unsafe fn lanes(from: *const Self) -> Self::Lanes;
    /// Reads what a step takes of a row.
    ///
    /// # Safety
    /// There are [`Weight::DEPTH`] numbers at `from`.
    unsafe fn scalar(from: *const A) -> Self::Scalar;
    /// Adds the products of a step.
    ///
    /// # Safety
    /// The instructions of `V` are there.
    unsafe fn step(sum: V, scalar: Self::Scalar, lanes: Self::Lanes) -> V;
}

impl<V: Vector> Weight<V, Self> for u16 {
    type Lanes = V::Pairs;
    type Scalar = u32;
    const DEPTH: usize = 2;
    // What bf16 rounded away before is far more.
    const SEGMENT: usize = usize::MAX;

    #[inline(always)]
    unsafe fn lanes(from: *const Self) -> Self::Lanes {
        // SAFETY: the caller has the instructions, and twice 16 numbers there.
        unsafe { V::load_pairs(from) }
    }

    #[inline(always)]
    unsafe fn scalar(from: *const Self) -> u32 {
        // SAFETY: the caller has two numbers of 16 bits there; all bits are a `u32`.
        unsafe { from.cast::<u32>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn step(sum: V, scalar: u32, lanes: Self::Lanes) -> V {
        // SAFETY: the caller has the instructions.
        unsafe { sum.dot_pairs(scalar, lanes) }
    }
}

impl<V: Vector<Pairs = (V, V)>> Weight<V, f32> for u16 {
    type Lanes = (V, V);
    type Scalar = (f32, f32);
    const DEPTH: usize = PAIR;
    // As of f32, whose bits the sums have.
    const SEGMENT: usize = <f32 as Weight<V, f32>>::SEGMENT;

    #[inline(always)]
    unsafe fn lanes(from: *const Self) -> (V, V) {
        // SAFETY: the caller has the instructions, and twice 16 numbers there.
        unsafe { V::load_pairs(from) }
    }

    #[inline(always)]
    unsafe fn scalar(from: *const f32) -> (f32, f32) {
        // SAFETY: the caller has two numbers there, which are of a slice and so are aligned.
        unsafe { (from.read(), from.add(1).read()) }
    }

    #[inline(always)]
    unsafe fn step(sum: V, (first, second): (f32, f32), (even, odd): (V, V)) -> V {
        // SAFETY: the caller has the instructions.
        unsafe { sum.multiply_add(first, even).multiply_add(second, odd) }
    }
}

impl<V: Vector> Weight<V, Self> for f32 {
    type Lanes = V;
    type Scalar = f32;
    const DEPTH: usize = 1;
    const SEGMENT: usize = 64;

    #[inline(always)]
    unsafe fn lanes(from: *const Self) -> V {
        // SAFETY: the caller has the instructions, and 16 numbers there.
        unsafe { V::load(from) }
    }

    #[inline(always)]
    unsafe fn scalar(from: *const Self) -> f32 {
        // SAFETY: the caller has a number there, which is one of a slice and so is aligned.
        unsafe { from.read() }
    }

    #[inline(always)]
    unsafe fn step(sum: V, scalar: f32, lanes: V) -> V {
        // SAFETY: the caller has the instructions.
        unsafe { sum.multiply_add(scalar, lanes) }
    }
}

/// Goes over the result in tiles of up to `ROWS` rows (at most 8) and `BLOCKS` blocks (at most 3).
///
/// # Safety
/// The instructions of `V` are there, the pointers are valid for what [`Gemm`] says, and nobody else uses C meanwhile.
#[inline(always)]
pub(super) unsafe fn walk<V: Vector, T: Weight<V, A>, A: Copy, const ROWS: usize, const BLOCKS: usize>(
    work: &Gemm<T, A>,
) {
    let mut block = 0;
    while block < work.blocks {
        // SAFETY: the caller's promise; as many blocks as a column has follow from `block` on.
        unsafe {
            match (work.blocks - block).min(BLOCKS) {
                1 => column::<V, T, A, ROWS, 1>(work, block),
                2 => column::<V, T, A, ROWS, 2>(work, block),
                _ => column::<V, T, A, ROWS, 3>(work, block),
            }
        }
        block += BLOCKS;
    }
}

/// The blocks from `block` on, `BLOCKS` of them, of all rows.
///
/// # Safety
/// As of [`walk`]; there are so many blocks.
#[inline(always)]
unsafe fn column<V: Vector, T: Weight<V, A>, A: Copy, const ROWS: usize, const BLOCKS: usize>(
    work: &Gemm<T, A>,
    block: usize,
) {
    let mut row = 0;
    let mut ahead = Ahead::new::<BLOCKS>(work, block, work.rows.div_ceil(ROWS));
    while row < work.rows {
        // SAFETY: the caller's promise; as many rows as a tile has follow from `row` on.
        unsafe {
            match (work.rows - row).min(ROWS) {
                1 => tile::<V, T, A, 1, BLOCKS>(work, row, block, &mut ahead),
                2 => tile::<V, T, A, 2, BLOCKS>(work, row, block, &mut ahead),
                3 => tile::<V, T, A, 3, BLOCKS>(work, row, block, &mut ahead),
                4 => tile::<V, T, A, 4, BLOCKS>(work, row, block, &mut ahead),
                5 => tile::<V, T, A, 5, BLOCKS>(work, row, block, &mut ahead),
                6 => tile::<V, T, A, 6, BLOCKS>(work, row, block, &mut ahead),
                7 => tile::<V, T, A, 7, BLOCKS>(work, row, block, &mut ahead),
                _ => tile::<V, T, A, 8, BLOCKS>(work, row, block, &mut ahead),
            }
        }
        row += ROWS;
    }
}

/// One tile, accumulated in registers over a segment of the inner dimension, in its order; then over the segments.
///
/// # Safety
/// As of [`walk`]; there are `ROWS` rows from `row` on, and `BLOCKS` blocks from `block` on.
#[inline(always)]
unsafe fn tile<V: Vector, T: Weight<V, A>, A: Copy, const ROWS: usize, const BLOCKS: usize>(
    work: &Gemm<T, A>,
    row: usize,
    block: usize,
    ahead: &mut Ahead,
) {
    // SAFETY: what is read of A and B and written of C is of the rows and blocks of this tile, which the caller says are
    // there. Over the inner dimension a step begins below `k`, which is a multiple of what a step takes, so it ends there.
    unsafe {
        let c = work.c.add(row * work.c_stride + block * LANES);
        let a = work.a.add(row * work.a_stride);
        let b = work.b.add(block * work.b_block_stride);
        // The first tile asks for what is read soon; to ask once more would be of no use.
        let soon = if row == 0 { work.soon } else { 0 };
        let mut totals = [[V::zero(); BLOCKS]; ROWS];
        let mut depth = 0;
        while depth < work.k {
            let end = work.k.min(depth.saturating_add(T::SEGMENT));
            let mut sums = [[V::zero(); BLOCKS]; ROWS];
            while depth < end {
                if depth.is_multiple_of(PIECE) {
                    ahead.fetch();
                }
                let from = |n: usize| b.add(n * work.b_block_stride + depth * LANES);
                let mut lanes = [T::lanes(from(0)); BLOCKS];
                for (n, lanes) in lanes.iter_mut().enumerate().skip(1) {
                    *lanes = T::lanes(from(n));
                }
                for n in 0..BLOCKS {
                    prefetch_line(from(n).wrapping_offset(soon).cast());
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let scalar = T::scalar(a.add(r * work.a_stride + depth));
                    for (sum, lanes) in sums.iter_mut().zip(lanes) {
                        *sum = T::step(*sum, scalar, lanes);
                    }
                }
                depth += T::DEPTH;
            }
            if T::SEGMENT == usize::MAX {
                // The only segment. As below, -0 becomes 0; but no total is kept in memory beside its sum.
                for (totals, sums) in totals.iter_mut().zip(sums) {
                    for (total, sum) in totals.iter_mut().zip(sums) {
                        *total = sum.add(V::zero());
                    }
                }
                break;
            }
            for (totals, sums) in totals.iter_mut().zip(sums) {
                for (total, sum) in totals.iter_mut().zip(sums) {
                    *total = total.add(sum);
                }
            }
        }
        for (r, totals) in totals.iter().enumerate() {
            for (n, sum) in totals.iter().enumerate() {
                let c = c.add(r * work.c_stride + n * LANES);
                if work.accumulate { sum.add(V::load(c)).store(c) } else { sum.store(c) }
            }
        }
    }
}
