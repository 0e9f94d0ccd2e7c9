//! A product as kernels take it: addresses and distances, without lengths.

use super::LANES;

/// `C[m][n] (+)= sum over k of A[m][k] * B[k][n]`, as raw as a kernel needs it; `T` is what B has, `u16` (bf16) or `f32`,
/// and `A` is what A has.
pub(super) struct Gemm<T, A = T> {
    /// `rows` rows, `a_stride` numbers apart, of `k` numbers.
    pub(super) a: *const A,
    pub(super) a_stride: usize,
    pub(super) rows: usize,
    /// Blocks of 16 packed columns, `b_block_stride` numbers apart.
    pub(super) b: *const T,
    pub(super) b_block_stride: usize,
    pub(super) blocks: usize,
    /// Blocks that follow these without a gap and are likely to be multiplied next: they may be fetched ahead.
    pub(super) following: usize,
    /// Where the blocks begin that this thread most likely multiplies afterwards, and how many these are: tiles fetch some of
    /// them meanwhile. They need not be there.
    pub(super) next: (*const T, usize),
    /// How many numbers behind what is read of B those begin that are read soon: they are fetched into the second cache
    /// meanwhile, line by line. May lead anywhere; 0 fetches nothing new.
    pub(super) soon: isize,
    /// The inner dimension; a multiple of 32 for bf16, and of 2 where only B is bf16.
    pub(super) k: usize,
    /// `rows` rows, `c_stride` numbers apart, of `16 * blocks` numbers.
    pub(super) c: *mut f32,
    pub(super) c_stride: usize,
    /// Adds to what C holds rather than overwriting it. The products are summed first: to add them one by one to a
    /// large number would round each of them at its last place.
    pub(super) accumulate: bool,
}

/// What a product is taken apart along, so that B may lie anywhere for each of the pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Along {
    /// Columns of the result: all of A is multiplied with each piece of B, and the results lie one beside another.
    Columns,
    /// The inner dimension: each piece of A is multiplied with one of B, and all results are added to C.
    Depth,
}

/// How many pieces there are at most.
pub(super) const MOST_PIECES: usize = 4;

/// Where B lies for a piece of a product.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<T> {
    /// As of [`Gemm`].
    pub(super) b: *const T,
    /// As of [`Gemm`].
    pub(super) soon: isize,
}

impl<T, A> Gemm<T, A> {
    /// The piece `index`, if this is the first one.
    pub(super) fn piece(&self, along: Along, index: usize, piece: &Piece<T>) -> Self {
        let (a, c) = match along {
            Along::Columns => (self.a, self.c.wrapping_add(index * self.blocks * LANES)),
            Along::Depth => (self.a.wrapping_add(index * self.k), self.c),
        };
        Self { a, c, b: piece.b, soon: piece.soon, ..*self }
    }
}

/// A product of bf16.
pub(super) type Bf16Gemm = Gemm<u16>;

/// A product of activations in f32 with weights in bf16.
pub(super) type MixedGemm = Gemm<u16, f32>;
