//! Products of activations with packed matrices.
//!
//! Both sides have one precision, or activations are f32 and weights bf16. Then weights are widened in registers, and sums
//! have the order of f32: the product has the bits of the one with weights that were widened before.

use std::{ops::Range, ptr};

use super::{
    KernelName, KernelSet, LANES, Operand, Packed, Pool, Processor, States,
    multiplier::Multiplier,
    packed::Numbers,
    pages::Stored,
    parts::Parts,
    raw::{Along, Gemm, MOST_PIECES, Piece},
};

/// A product of either precision or of both, with sides that know their lengths.
pub(super) struct Product<'a> {
    /// The numbers of A, and where its first row begins.
    pub(super) a: (&'a Numbers, usize),
    pub(super) a_stride: usize,
    pub(super) rows: usize,
    /// The numbers of B, and where its first block begins.
    pub(super) b: (&'a Stored, usize),
    pub(super) b_block_stride: usize,
    pub(super) blocks: usize,
    /// As of [`Gemm`].
    pub(super) following: usize,
    /// As of [`Gemm`]: where the blocks begin among the numbers of B, and how many these are.
    pub(super) next: (usize, usize),
    /// As of [`Gemm`].
    pub(super) soon: isize,
    pub(super) k: usize,
    pub(super) c_stride: usize,
    pub(super) accumulate: bool,
}

impl Product<'_> {
    /// Computes it into C, which begins at `c`.
    ///
    /// # Panics
    /// If a side is too short, or activations in bf16 meet weights in f32.
    ///
    /// # Safety
    /// `c` is valid for what [`Gemm`] says of C, nobody else uses that meanwhile, and `k` is as [`Gemm`] has it.
    pub(super) unsafe fn compute(&self, multiplier: &mut Multiplier, c: *mut f32) {
        // SAFETY: `raw` looks at the lengths of both sides, the caller vouches for `k` and C.
        unsafe {
            match (self.a.0, self.b.0) {
                (Numbers::Bf16(a), Stored::Bf16(b)) => multiplier.bf16(&self.raw(a, b, c)),
                (Numbers::F32(a), Stored::F32(b)) => multiplier.f32(&self.raw(a, b, c)),
                (Numbers::F32(a), Stored::Bf16(b)) => multiplier.mixed(&self.raw(a, b, c)),
                (Numbers::Bf16(_), Stored::F32(_)) => panic!("activations are no less precise than weights"),
            }
        }
    }

    /// Computes it in pieces whose B lies anywhere: this product is the first of them but for where B begins among its numbers, and
    /// for `soon`, which each of the pieces says. The result has the bits that it has if they are computed one by one.
    ///
    /// # Panics
    /// As of [`Product::compute`], for each of the pieces; or if there are more than [`MOST_PIECES`].
    ///
    /// # Safety
    /// As of [`Product::compute`], for each of the pieces.
    pub(super) unsafe fn compute_pieces(
        &self,
        multiplier: &mut Multiplier,
        along: Along,
        pieces: &[(usize, isize)],
        c: *mut f32,
    ) {
        // SAFETY: `raw` looks at the lengths of both sides of each piece, the caller vouches for `k` and C.
        unsafe {
            match (self.a.0, self.b.0) {
                (Numbers::Bf16(a), Stored::Bf16(b)) => {
                    let mut raw = [Piece { b: ptr::null(), soon: 0 }; MOST_PIECES];
                    for (index, (raw, piece)) in raw.iter_mut().zip(pieces).enumerate() {
                        let Gemm { b, soon, .. } = self.piece(along, index, *piece).raw(a, b, c);
                        *raw = Piece { b, soon };
                    }
                    multiplier.bf16_pieces(&self.raw(a, b, c), along, &raw[..pieces.len()]);
                }
                _ => {
                    for (index, piece) in pieces.iter().enumerate() {
                        let beside = if along == Along::Columns { index * self.blocks * LANES } else { 0 };
                        self.piece(along, index, *piece).compute(multiplier, c.add(beside));
                    }
                }
            }
        }
    }

    /// The sides of a piece.
    fn piece(&self, along: Along, index: usize, (place, soon): (usize, isize)) -> Product<'_> {
        let beginning = if along == Along::Depth { index * self.k } else { 0 };
        Product { a: (self.a.0, self.a.1 + beginning), b: (self.b.0, place), soon, ..*self }
    }

    fn raw<T, A>(&self, a: &[A], b: &[T], c: *mut f32) -> Gemm<T, A> {
        let Self { a_stride, rows, b_block_stride, blocks, following, next, soon, k, c_stride, accumulate, .. } = *self;
        let length =
            |count: usize, stride: usize, last: usize| count.checked_sub(1).map_or(0, |gaps| gaps * stride + last);
        let a = &a[self.a.1..][..length(rows, a_stride, k)];
        let next = (b.as_ptr().wrapping_add(next.0), next.1);
        let b = &b[self.b.1..][..length(blocks + following, b_block_stride, k * LANES)];
        let (a, b) = (a.as_ptr(), b.as_ptr());
        Gemm { a, a_stride, rows, b, b_block_stride, blocks, following, next, soon, k, c, c_stride, accumulate }
    }
}

/// How many rows of activations stay close to the processor while a panel of weights passes.
const ROWS_AT_ONCE: usize = 128;
/// How many blocks vectors compute at once, and so many are fetched ahead meanwhile.
const AHEAD: usize = 3;
/// How many blocks tiles compute at once, or twice as many as that.
const OF_TILES: usize = 4;
/// How many blocks a share of work has at most, in steps of those that are computed at once: enough to make handing it out cheap.
const STEPS_AT_ONCE: usize = 4;
/// How many shares each thread has at least, where there is so much work: whoever is late leaves some to the others.
const SHARES_OF_A_THREAD: usize = 4;
/// How far ahead weights are fetched within a block, in bytes.
const SOON_BYTES: isize = 2048;

/// A product in shares of some rows and some blocks, which threads take as they are free.
pub(super) struct Shares {
    rows: usize,
    blocks: usize,
    /// How many blocks are computed at once.
    step: usize,
    /// Shares of the same rows. Their blocks differ by a step at most.
    across: usize,
}

impl Shares {
    pub(super) fn of(rows: usize, blocks: usize, set: KernelSet, pool: &Pool) -> Self {
        let step = if set.name() == KernelName::Amx { OF_TILES } else { AHEAD };
        let (steps, threads) = (blocks.div_ceil(step), pool.threads());
        let of_a_thread = steps.div_ceil(threads * STEPS_AT_ONCE).max(SHARES_OF_A_THREAD);
        Self { rows, blocks, step, across: (threads * of_a_thread).min(steps) }
    }

    pub(super) fn count(&self) -> usize {
        self.rows.div_ceil(ROWS_AT_ONCE) * self.across
    }

    /// The blocks of the share that a thread takes after `index` if each of them takes one of the next ones.
    fn after(&self, index: usize, threads: usize) -> Option<Range<usize>> {
        (index + threads < self.count()).then(|| self.get(index + threads).1)
    }

    /// The rows and the blocks of a share.
    pub(super) fn get(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let (row, share) = (index / self.across * ROWS_AT_ONCE, index % self.across);
        // The larger shares come first, so that the threads end together.
        let steps = self.blocks.div_ceil(self.step);
        let (of_each, larger) = (steps / self.across, steps % self.across);
        let start = |share: usize| ((share * of_each + share.min(larger)) * self.step).min(self.blocks);
        (row..self.rows.min(row + ROWS_AT_ONCE), start(share)..start(share + 1))
    }
}

/// `out[r] (+)= matrix * input[r]` for every row.
///
/// # Panics
/// If shapes or precisions do not fit together.
pub(crate) fn multiply(
    Processor { set, pool }: &mut Processor,
    input: &Operand,
    matrix: &Packed,
    out: &mut States,
    accumulate: bool,
) {
    let (set, rows, block_len) = (*set, input.rows, matrix.block_len());
    let depth = match input.numbers {
        Numbers::Bf16(_) => matrix.depth,
        // Rows of activations end with a whole pair, before the padding of weights in bf16 does.
        Numbers::F32(_) => matrix.depth.min(input.stride),
    };
    let (all, stride) = (matrix.outputs.div_ceil(LANES), out.stride);
    assert_eq!(input.columns, matrix.inputs, "the inner dimensions are equal");
    assert_eq!((out.rows, out.columns), (rows, matrix.outputs), "the result has the outer dimensions");
    let soon = SOON_BYTES / if matches!(matrix.numbers, Stored::Bf16(_)) { 2 } else { 4 };
    let shares = Shares::of(rows, all, set, pool);
    let (out, threads) = (Parts::new(&mut out.numbers), pool.threads());
    pool.for_each(shares.count(), &|index| {
        let (rows, blocks) = shares.get(index);
        let c = out.address(rows.start * stride + blocks.start * LANES);
        let product = Product {
            a: (&input.numbers, rows.start * input.stride),
            a_stride: input.stride,
            rows: rows.len(),
            b: (&matrix.numbers, blocks.start * block_len),
            b_block_stride: block_len,
            blocks: blocks.len(),
            following: (all - blocks.end).min(AHEAD),
            // Most likely, this thread takes that share next.
            next: shares.after(index, threads).map_or((0, 0), |next| (next.start * block_len, next.len())),
            soon,
            k: depth,
            c_stride: stride,
            accumulate,
        };
        // SAFETY: `out` has the rows and whole blocks from `c` on, and shares of it do not overlap; the depth of a matrix is
        // padded to what its precision reads at once, and rows in f32 to whole pairs.
        unsafe { product.compute(&mut Multiplier::new(set), c) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_every_block_of_every_row_once_and_threads_have_as_many() {
        for (rows, blocks, threads) in
            [(1, 60, 2), (128, 36, 2), (129, 192, 2), (300, 3_072, 3), (4, 2, 2), (7, 35, 8), (1, 1, 1)]
        {
            for set in KernelSet::available() {
                assert_every_block_is_there_once(rows, blocks, set, threads);
            }
        }
    }

    fn assert_every_block_is_there_once(rows: usize, blocks: usize, set: KernelSet, threads: usize) {
        let shares = Shares::of(rows, blocks, set, &Pool::new(threads).unwrap());
        let mut found = vec![0; rows * blocks];
        let mut sizes = Vec::new();
        for (rows, of_rows) in (0..shares.count()).map(|index| shares.get(index)) {
            assert!(of_rows.len() <= (STEPS_AT_ONCE + 1) * shares.step, "enough threads take part");
            rows.clone().for_each(|row| of_rows.clone().for_each(|block| found[row * blocks + block] += 1));
            if rows.start == 0 {
                sizes.push(of_rows.len().div_ceil(shares.step));
            }
        }
        assert!(found.iter().all(|times| *times == 1), "{rows} rows, {blocks} blocks, {threads} threads");
        assert!(sizes.is_sorted_by(|one, next| one >= next), "{sizes:?}: the last ones are the smallest");
        assert!(sizes[0] - sizes[sizes.len() - 1] <= 1, "{sizes:?}");
    }
}
