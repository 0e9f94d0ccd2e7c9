//! A product as kernels take it: addresses and distances, without lengths.

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

/// A product of bf16.
pub(super) type Bf16Gemm = Gemm<u16>;

/// A product of activations in f32 with weights in bf16.
pub(super) type MixedGemm = Gemm<u16, f32>;
