//! Products of activations with packed matrices.

use std::ops::Range;

use super::{
    KernelName, KernelSet, LANES, Operand, Packed, Pool, Processor, States,
    ahead::{Ahead, PIECE},
    packed::Numbers,
    pages::Stored,
    parts::Parts,
    raw::Gemm,
    vector::{Plain, Vector},
};

#[cfg(target_arch = "x86_64")]
use super::vector::x86::{Avx2, Avx512, Avx512Bf16};

/// A product of either precision, with sides that know their lengths.
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
    pub(super) k: usize,
    pub(super) c_stride: usize,
    pub(super) accumulate: bool,
}

impl Product<'_> {
    /// Computes it into C, which begins at `c`.
    ///
    /// # Panics
    /// If a side is too short, or they differ in precision.
    ///
    /// # Safety
    /// `c` is valid for what [`Gemm`] says of C, nobody else uses that meanwhile, and `k` is as [`Gemm`] has it.
    pub(super) unsafe fn compute(&self, set: KernelSet, c: *mut f32) {
        // SAFETY: `raw` looks at the lengths of both sides, the caller vouches for `k` and C.
        unsafe {
            match (self.a.0, self.b.0) {
                (Numbers::Bf16(a), Stored::Bf16(b)) => gemm_bf16(set, &self.raw(a, b, c)),
                (Numbers::F32(a), Stored::F32(b)) => gemm_f32(set, &self.raw(a, b, c)),
                _ => panic!("both sides of a product have one precision"),
            }
        }
    }

    fn raw<T>(&self, a: &[T], b: &[T], c: *mut f32) -> Gemm<T> {
        let Self { a_stride, rows, b_block_stride, blocks, following, k, c_stride, accumulate, .. } = *self;
        let length =
            |count: usize, stride: usize, last: usize| count.checked_sub(1).map_or(0, |gaps| gaps * stride + last);
        let a = &a[self.a.1..][..length(rows, a_stride, k)];
        let b = &b[self.b.1..][..length(blocks + following, b_block_stride, k * LANES)];
        let (a, b) = (a.as_ptr(), b.as_ptr());
        Gemm { a, a_stride, rows, b, b_block_stride, blocks, following, k, c, c_stride, accumulate }
    }
}

/// How many rows of activations stay close to the processor while a panel of weights passes.
const ROWS_AT_ONCE: usize = 128;
/// How many blocks are computed at once, and so many are fetched ahead meanwhile.
const AHEAD: usize = 3;
/// How many blocks a share of work has: enough to make handing it out cheap.
const BLOCKS_AT_ONCE: usize = 12;

/// A product in shares of some rows and some blocks, which threads take as they are free.
pub(super) struct Shares {
    rows: usize,
    blocks: usize,
    /// Blocks of a share.
    share: usize,
}

impl Shares {
    pub(super) fn of(rows: usize, blocks: usize, pool: &Pool) -> Self {
        let share = blocks.div_ceil(4 * pool.threads()).clamp(1, BLOCKS_AT_ONCE).next_multiple_of(3);
        Self { rows, blocks, share }
    }

    pub(super) fn count(&self) -> usize {
        self.rows.div_ceil(ROWS_AT_ONCE) * self.blocks.div_ceil(self.share)
    }

    /// The rows and the blocks of a share.
    pub(super) fn get(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let across = self.blocks.div_ceil(self.share);
        let (row, block) = (index / across * ROWS_AT_ONCE, index % across * self.share);
        (row..self.rows.min(row + ROWS_AT_ONCE), block..self.blocks.min(block + self.share))
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
    let (set, rows, depth, block_len) = (*set, input.rows, matrix.depth, matrix.block_len());
    let (all, stride) = (matrix.outputs.div_ceil(LANES), out.stride);
    assert_eq!(input.columns, matrix.inputs, "the inner dimensions are equal");
    assert_eq!((out.rows, out.columns), (rows, matrix.outputs), "the result has the outer dimensions");
    let shares = Shares::of(rows, all, pool);
    let out = Parts::new(&mut out.numbers);
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
            k: depth,
            c_stride: stride,
            accumulate,
        };
        // SAFETY: `out` has the rows and whole blocks from `c` on, and shares of it do not overlap; the depth of a matrix is
        // padded to what its precision reads at once.
        unsafe { product.compute(set, c) };
    });
}

/// # Safety
/// The pointers are valid for what [`Gemm`] says, and nobody else uses C meanwhile.
unsafe fn gemm_bf16(set: KernelSet, work: &Gemm<u16>) {
    debug_assert!(work.k.is_multiple_of(32), "bf16 is multiplied 32 numbers at a time");
    // SAFETY: the pointers are the caller's promise. That there is a set of this name shows that the processor has its
    // instructions, and for the tiles that the system lets this process use them.
    unsafe {
        match set.name() {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            KernelName::Amx if work.accumulate => add_amx(set, work),
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            KernelName::Amx => super::amx::gemm(work),
            #[cfg(target_arch = "x86_64")]
            KernelName::Avx512Bf16 => avx512_bf16(work),
            #[cfg(target_arch = "x86_64")]
            KernelName::Avx512 => avx512_pairs(work),
            #[cfg(target_arch = "x86_64")]
            KernelName::Avx2 => avx2_pairs(work),
            _ => walk::<Plain, u16, 4, 1>(work),
        }
    }
}

/// The tiles' own way to accumulate begins with C.
///
/// # Safety
/// As of [`gemm_bf16`]; the set is that of the tiles.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
unsafe fn add_amx(set: KernelSet, work: &Gemm<u16>) {
    thread_local! {
        static SUMS: std::cell::RefCell<Vec<f32>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let columns = work.blocks * LANES;
    SUMS.with_borrow_mut(|sums| {
        sums.resize(work.rows * columns, 0.0);
        let into = Gemm { c: sums.as_mut_ptr(), c_stride: columns, accumulate: false, ..*work };
        // SAFETY: the caller's promises; `sums` has a row for each row of C.
        unsafe { super::amx::gemm(&into) };
        for (row, sums) in sums.chunks_exact(columns.max(1)).take(work.rows).enumerate() {
            // SAFETY: the caller's promise.
            let c = unsafe { std::slice::from_raw_parts_mut(work.c.add(row * work.c_stride), columns) };
            set.vectorize(Add { to: c, from: sums });
        }
    });
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
struct Add<'a> {
    to: &'a mut [f32],
    from: &'a [f32],
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl super::instructions::Vectorized for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (to, from) in self.to.iter_mut().zip(self.from) {
            *to += from;
        }
    }
}

/// # Safety
/// As of [`gemm_bf16`].
unsafe fn gemm_f32(set: KernelSet, work: &Gemm<f32>) {
    // SAFETY: as in `gemm_bf16`.
    unsafe {
        match set.name() {
            #[cfg(target_arch = "x86_64")]
            KernelName::Amx | KernelName::Avx512Bf16 | KernelName::Avx512 => avx512(work),
            #[cfg(target_arch = "x86_64")]
            KernelName::Avx2 => avx2(work),
            _ => walk::<Plain, f32, 4, 1>(work),
        }
    }
}

/// # Safety
/// As of [`walk`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")]
unsafe fn avx512_bf16(work: &Gemm<u16>) {
    // SAFETY: this function is compiled for the instructions of its vectors; the pointers are the caller's promise.
    unsafe { walk::<Avx512Bf16, u16, 8, 3>(work) }
}

/// # Safety
/// As of [`walk`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
unsafe fn avx512_pairs(work: &Gemm<u16>) {
    // SAFETY: this function is compiled for the instructions of its vectors; the pointers are the caller's promise.
    unsafe { walk::<Avx512, u16, 8, 2>(work) }
}

/// # Safety
/// As of [`walk`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
unsafe fn avx512(work: &Gemm<f32>) {
    // SAFETY: this function is compiled for the instructions of its vectors; the pointers are the caller's promise.
    unsafe { walk::<Avx512, f32, 8, 3>(work) }
}

/// # Safety
/// As of [`walk`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2_pairs(work: &Gemm<u16>) {
    // SAFETY: this function is compiled for the instructions of its vectors; the pointers are the caller's promise.
    unsafe { walk::<Avx2, u16, 4, 1>(work) }
}

/// # Safety
/// As of [`walk`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(work: &Gemm<f32>) {
    // SAFETY: this function is compiled for the instructions of its vectors; the pointers are the caller's promise.
    unsafe { walk::<Avx2, f32, 4, 1>(work) }
}

/// A type of weights, and one step of the walk over the inner dimension.
pub(super) trait Weight<V: Vector>: Copy {
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
    unsafe fn scalar(from: *const Self) -> Self::Scalar;
    /// Adds the products of a step.
    ///
    /// # Safety
    /// The instructions of `V` are there.
    unsafe fn step(sum: V, scalar: Self::Scalar, lanes: Self::Lanes) -> V;
}

impl<V: Vector> Weight<V> for u16 {
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

impl<V: Vector> Weight<V> for f32 {
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
unsafe fn walk<V: Vector, T: Weight<V>, const ROWS: usize, const BLOCKS: usize>(work: &Gemm<T>) {
    let mut block = 0;
    while block < work.blocks {
        // SAFETY: the caller's promise; as many blocks as a column has follow from `block` on.
        unsafe {
            match (work.blocks - block).min(BLOCKS) {
                1 => column::<V, T, ROWS, 1>(work, block),
                2 => column::<V, T, ROWS, 2>(work, block),
                _ => column::<V, T, ROWS, 3>(work, block),
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
unsafe fn column<V: Vector, T: Weight<V>, const ROWS: usize, const BLOCKS: usize>(work: &Gemm<T>, block: usize) {
    let mut row = 0;
    let mut ahead = Ahead::new::<BLOCKS>(work, block, work.rows.div_ceil(ROWS));
    while row < work.rows {
        // SAFETY: the caller's promise; as many rows as a tile has follow from `row` on.
        unsafe {
            match (work.rows - row).min(ROWS) {
                1 => tile::<V, T, 1, BLOCKS>(work, row, block, &mut ahead),
                2 => tile::<V, T, 2, BLOCKS>(work, row, block, &mut ahead),
                3 => tile::<V, T, 3, BLOCKS>(work, row, block, &mut ahead),
                4 => tile::<V, T, 4, BLOCKS>(work, row, block, &mut ahead),
                5 => tile::<V, T, 5, BLOCKS>(work, row, block, &mut ahead),
                6 => tile::<V, T, 6, BLOCKS>(work, row, block, &mut ahead),
                7 => tile::<V, T, 7, BLOCKS>(work, row, block, &mut ahead),
                _ => tile::<V, T, 8, BLOCKS>(work, row, block, &mut ahead),
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
unsafe fn tile<V: Vector, T: Weight<V>, const ROWS: usize, const BLOCKS: usize>(
    work: &Gemm<T>,
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
        let mut totals = [[V::zero(); BLOCKS]; ROWS];
        let mut depth = 0;
        while depth < work.k {
            let end = work.k.min(depth.saturating_add(T::SEGMENT));
            let mut sums = [[V::zero(); BLOCKS]; ROWS];
            while depth < end {
                if depth.is_multiple_of(PIECE) {
                    ahead.fetch();
                }
                let mut lanes = [T::lanes(b.add(depth * LANES)); BLOCKS];
                for (n, lanes) in lanes.iter_mut().enumerate().skip(1) {
                    *lanes = T::lanes(b.add(n * work.b_block_stride + depth * LANES));
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let scalar = T::scalar(a.add(r * work.a_stride + depth));
                    for (sum, lanes) in sums.iter_mut().zip(lanes) {
                        *sum = T::step(*sum, scalar, lanes);
                    }
                }
                depth += T::DEPTH;
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
