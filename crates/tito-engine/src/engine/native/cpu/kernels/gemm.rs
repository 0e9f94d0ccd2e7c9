//! Products of activations with packed matrices.
//!
//! Both sides have one precision, or activations are f32 and weights bf16. Then weights are widened in registers, and sums
//! have the order of f32: the product has the bits of the one with weights that were widened before.

use std::ops::Range;

use super::{
    KernelName, KernelSet, LANES, Operand, Packed, Pool, Processor, States,
    packed::Numbers,
    pages::Stored,
    parts::Parts,
    precision::PAIR,
    raw::{Gemm, MixedGemm},
    vector::Plain,
    walk::walk,
};

#[cfg(target_arch = "x86_64")]
use super::vector::x86::{Avx2, Avx512, Avx512Bf16};

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
    pub(super) unsafe fn compute(&self, set: KernelSet, c: *mut f32) {
        // SAFETY: `raw` looks at the lengths of both sides, the caller vouches for `k` and C.
        unsafe {
            match (self.a.0, self.b.0) {
                (Numbers::Bf16(a), Stored::Bf16(b)) => gemm_bf16(set, &self.raw(a, b, c)),
                (Numbers::F32(a), Stored::F32(b)) => gemm_f32(set, &self.raw(a, b, c)),
                (Numbers::F32(a), Stored::Bf16(b)) => gemm_mixed(set, &self.raw(a, b, c)),
                (Numbers::Bf16(_), Stored::F32(_)) => panic!("activations are no less precise than weights"),
            }
        }
    }

    fn raw<T, A>(&self, a: &[A], b: &[T], c: *mut f32) -> Gemm<T, A> {
        let Self { a_stride, rows, b_block_stride, blocks, following, soon, k, c_stride, accumulate, .. } = *self;
        let length =
            |count: usize, stride: usize, last: usize| count.checked_sub(1).map_or(0, |gaps| gaps * stride + last);
        let a = &a[self.a.1..][..length(rows, a_stride, k)];
        let b = &b[self.b.1..][..length(blocks + following, b_block_stride, k * LANES)];
        let (a, b) = (a.as_ptr(), b.as_ptr());
        Gemm { a, a_stride, rows, b, b_block_stride, blocks, following, soon, k, c, c_stride, accumulate }
    }
}

/// How many rows of activations stay close to the processor while a panel of weights passes.
const ROWS_AT_ONCE: usize = 128;
/// How many blocks are computed at once, and so many are fetched ahead meanwhile.
const AHEAD: usize = 3;
/// How many blocks a share of work has at most, in steps of [`AHEAD`]: enough to make handing it out cheap.
const STEPS_AT_ONCE: usize = 4;
/// How many shares each thread has at least, where there is so much work: whoever is late leaves some to the others.
const SHARES_OF_A_THREAD: usize = 4;
/// How far ahead weights are fetched within a block, in bytes.
const SOON_BYTES: isize = 2048;

/// A product in shares of some rows and some blocks, which threads take as they are free.
pub(super) struct Shares {
    rows: usize,
    blocks: usize,
    /// Shares of the same rows. Their blocks differ by [`AHEAD`] at most.
    across: usize,
}

impl Shares {
    pub(super) fn of(rows: usize, blocks: usize, pool: &Pool) -> Self {
        let (steps, threads) = (blocks.div_ceil(AHEAD), pool.threads());
        let of_a_thread = steps.div_ceil(threads * STEPS_AT_ONCE).max(SHARES_OF_A_THREAD);
        Self { rows, blocks, across: (threads * of_a_thread).min(steps) }
    }

    pub(super) fn count(&self) -> usize {
        self.rows.div_ceil(ROWS_AT_ONCE) * self.across
    }

    /// The rows and the blocks of a share.
    pub(super) fn get(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let (row, share) = (index / self.across * ROWS_AT_ONCE, index % self.across);
        // The larger shares come first, so that the threads end together.
        let steps = self.blocks.div_ceil(AHEAD);
        let (of_each, larger) = (steps / self.across, steps % self.across);
        let start = |share: usize| ((share * of_each + share.min(larger)) * AHEAD).min(self.blocks);
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
            soon,
            k: depth,
            c_stride: stride,
            accumulate,
        };
        // SAFETY: `out` has the rows and whole blocks from `c` on, and shares of it do not overlap; the depth of a matrix is
        // padded to what its precision reads at once, and rows in f32 to whole pairs.
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
            _ => walk::<Plain, u16, u16, 4, 1>(work),
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
unsafe fn gemm_mixed(set: KernelSet, work: &MixedGemm) {
    debug_assert!(work.k.is_multiple_of(PAIR), "bf16 is widened a pair at a time");
    // SAFETY: as in `gemm_bf16`.
    unsafe {
        match set.name() {
            #[cfg(target_arch = "x86_64")]
            KernelName::Amx | KernelName::Avx512Bf16 | KernelName::Avx512 => avx512_mixed(work),
            #[cfg(target_arch = "x86_64")]
            KernelName::Avx2 => avx2_mixed(work),
            _ => walk::<Plain, u16, f32, 4, 1>(work),
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
            _ => walk::<Plain, f32, f32, 4, 1>(work),
        }
    }
}

/// # Safety
/// As of [`walk`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")]
unsafe fn avx512_bf16(work: &Gemm<u16>) {
    // SAFETY: this function is compiled for the instructions of its vectors; the pointers are the caller's promise.
    unsafe { walk::<Avx512Bf16, u16, u16, 8, 3>(work) }
}

/// # Safety
/// As of [`walk`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
unsafe fn avx512_pairs(work: &Gemm<u16>) {
    // SAFETY: this function is compiled for the instructions of its vectors; the pointers are the caller's promise.
    unsafe { walk::<Avx512, u16, u16, 8, 2>(work) }
}

/// # Safety
/// As of [`walk`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
unsafe fn avx512(work: &Gemm<f32>) {
    // SAFETY: this function is compiled for the instructions of its vectors; the pointers are the caller's promise.
    unsafe { walk::<Avx512, f32, f32, 8, 3>(work) }
}

/// # Safety
/// As of [`walk`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2_pairs(work: &Gemm<u16>) {
    // SAFETY: this function is compiled for the instructions of its vectors; the pointers are the caller's promise.
    unsafe { walk::<Avx2, u16, u16, 4, 1>(work) }
}

/// # Safety
/// As of [`walk`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(work: &Gemm<f32>) {
    // SAFETY: this function is compiled for the instructions of its vectors; the pointers are the caller's promise.
    unsafe { walk::<Avx2, f32, f32, 4, 1>(work) }
}

/// # Safety
/// As of [`walk`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
unsafe fn avx512_mixed(work: &MixedGemm) {
    // SAFETY: this function is compiled for the instructions of its vectors; the pointers are the caller's promise.
    unsafe { walk::<Avx512, u16, f32, 8, 3>(work) }
}

/// # Safety
/// As of [`walk`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2_mixed(work: &MixedGemm) {
    // SAFETY: this function is compiled for the instructions of its vectors; the pointers are the caller's promise.
    unsafe { walk::<Avx2, u16, f32, 4, 1>(work) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_every_block_of_every_row_once_and_threads_have_as_many() {
        for (rows, blocks, threads) in
            [(1, 60, 2), (128, 36, 2), (129, 192, 2), (300, 3_072, 3), (4, 2, 2), (7, 35, 8), (1, 1, 1)]
        {
            let shares = Shares::of(rows, blocks, &Pool::new(threads).unwrap());
            let mut found = vec![0; rows * blocks];
            let mut sizes = Vec::new();
            for (rows, of_rows) in (0..shares.count()).map(|index| shares.get(index)) {
                assert!(of_rows.len() <= (STEPS_AT_ONCE + 1) * AHEAD, "enough threads take part");
                rows.clone().for_each(|row| of_rows.clone().for_each(|block| found[row * blocks + block] += 1));
                if rows.start == 0 {
                    sizes.push(of_rows.len().div_ceil(AHEAD));
                }
            }
            assert!(found.iter().all(|times| *times == 1), "{rows} rows, {blocks} blocks, {threads} threads");
            assert!(sizes.is_sorted_by(|one, next| one >= next), "{sizes:?}: the last ones are the smallest");
            assert!(sizes[0] - sizes[sizes.len() - 1] <= 1, "{sizes:?}");
        }
    }
}
