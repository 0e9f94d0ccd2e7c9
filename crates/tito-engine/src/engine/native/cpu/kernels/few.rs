//! Few rows times blocks of 16 outputs that are widened in registers, without a panel.
//!
//! Who has blocks widens some of them side by side, input by input, and whoever takes the pairs multiplies them at once. Sums
//! are in the order of a packed matrix (`walk.rs`), so that products have the bits of those with a panel.
//!
//! Without optimisation, what is inlined keeps room on the stack for all that it computes, so that the largest functions are
//! not inlined then.

#[cfg(target_arch = "x86_64")]
use super::vector::x86::{Avx2, Avx512, Avx512Bf16};
use super::{
    KernelName, KernelSet, LANES, Precision,
    instructions::Vectorized,
    packed::Numbers,
    pages::Slice,
    panels::OfRows,
    scratch::with_row,
    vector::{Plain, Vector},
};

/// The most rows that are few.
const FEW: usize = 4;

/// What products with few rows need of an instruction set.
///
/// # Safety
/// As of [`Vector`]; pointers need not be aligned.
pub(super) trait FewVector: Vector {
    /// What activations are: bf16, or bf16 that was widened to f32.
    type Activation: Copy;
    /// The precision of these.
    const ACTIVATIONS: Precision;
    /// How many blocks are multiplied side by side, so that no sum waits for itself; three at most.
    const SIDE_BY_SIDE: usize;

    /// `self` plus the dot products of the pair of activations there with 16 pairs.
    unsafe fn dot(self, activations: *const Self::Activation, pairs: Self::Pairs) -> Self;
}

/// Implements products with activations in f32 for a set of vectors.
macro_rules! in_f32 {
    ($vector:ty, $side_by_side:literal) => {
        impl FewVector for $vector {
            type Activation = f32;
            const ACTIVATIONS: Precision = Precision::F32;
            const SIDE_BY_SIDE: usize = $side_by_side;

            #[inline(always)]
            unsafe fn dot(self, activations: *const f32, (even, odd): (Self, Self)) -> Self {
                // SAFETY: the caller has the instructions of this type, and two numbers there.
                unsafe { self.multiply_add(activations.read(), even).multiply_add(activations.add(1).read(), odd) }
            }
        }
    };
}

in_f32!(Plain, 1);

#[cfg(target_arch = "x86_64")]
in_f32!(Avx2, 1);
#[cfg(target_arch = "x86_64")]
in_f32!(Avx512, 2);

#[cfg(target_arch = "x86_64")]
impl FewVector for Avx512Bf16 {
    type Activation = u16;
    const ACTIVATIONS: Precision = Precision::Bf16;
    const SIDE_BY_SIDE: usize = 3;

    #[inline(always)]
    unsafe fn dot(self, activations: *const u16, pairs: Self::Pairs) -> Self {
        // SAFETY: the caller has the instructions of this type, and two numbers of 16 bits there; all bits are a `u32`.
        unsafe { self.dot_pairs(activations.cast::<u32>().read_unaligned(), pairs) }
    }
}

/// How many rows a set multiplies with blocks as they are widened, at most; more are faster with a panel. Tiles add in an
/// order of their own.
fn most_rows(set: KernelSet) -> usize {
    match set.name() {
        KernelName::Amx => 0,
        KernelName::Avx512Bf16 | KernelName::Avx512 | KernelName::Avx2 => FEW,
        KernelName::Portable => 1,
    }
}

/// Blocks that can be widened side by side.
pub(super) trait SideBySide<V: Vector> {
    /// How many blocks there are.
    fn count(&self) -> usize;

    /// How many inputs a block has.
    fn inputs(&self) -> usize;

    /// Gives all pairs of blocks to a sink, input by input.
    ///
    /// # Safety
    /// The instructions of `V` are there, and `BLOCKS` blocks from `first` on.
    unsafe fn widen<S: Sink<V>, const BLOCKS: usize>(&self, first: usize, sink: &mut S);
}

/// Who takes the pairs of blocks that are widened.
pub(super) trait Sink<V: Vector> {
    /// Takes pairs of one of the blocks.
    ///
    /// # Safety
    /// The instructions of `V` are there, and there is no pair more than was said.
    unsafe fn put(&mut self, block: usize, pairs: V::Pairs);
    /// Goes on to the next two inputs.
    ///
    /// # Safety
    /// As of [`Sink::put`].
    unsafe fn go_on(&mut self);
}

/// At most [`FEW`] rows of activations, and where their products go to.
#[derive(Clone, Copy)]
pub(super) struct FewRows<'a> {
    a: Slice<'a>,
    /// Numbers from a row to the next.
    a_stride: usize,
    rows: usize,
    /// Where the products of the first row with the first block go to.
    c: *mut f32,
    c_stride: usize,
    accumulate: bool,
}

impl<'a> FewRows<'a> {
    /// Calls `compute` with rows of so many inputs, as the vectors of a set read them; says whether it did. It does not if the
    /// rows are too many for the set, or not in bf16.
    ///
    /// `c` is where the products of the first row with the first block go to.
    pub(super) fn with(
        set: KernelSet,
        of_rows: &OfRows<'a>,
        inputs: usize,
        c: *mut f32,
        compute: impl FnOnce(FewRows<'_>),
    ) -> bool {
        let OfRows { a, first, stride, count, c_stride, accumulate } = *of_rows;
        let Numbers::Bf16(a) = a else { return false };
        if count > most_rows(set) {
            return false;
        }
        let a = &a[first..][..count.saturating_sub(1) * stride + inputs];
        let rows = FewRows { a: Slice::Bf16(a), a_stride: stride, rows: count, c, c_stride, accumulate };
        if set.name() == KernelName::Avx512Bf16 {
            compute(rows);
        } else {
            with_row(a.len(), |wide| {
                set.vectorize(ToF32 { from: a, to: wide });
                compute(FewRows { a: Slice::F32(wide), ..rows });
            });
        }
        true
    }

    /// Multiplies them with blocks.
    ///
    /// # Panics
    /// If rows are of another precision than the vectors ask for, or shorter than the blocks.
    ///
    /// # Safety
    /// The instructions of `V` are there, and room for the products of all rows with all blocks.
    #[inline(always)]
    pub(super) unsafe fn times<V: FewVector>(&self, blocks: &impl SideBySide<V>) {
        let (precision, len) = match self.a {
            Slice::Bf16(numbers) => (Precision::Bf16, numbers.len()),
            Slice::F32(numbers) => (Precision::F32, numbers.len()),
        };
        let needed = self.rows.saturating_sub(1) * self.a_stride + blocks.inputs();
        assert!(precision == V::ACTIVATIONS && len >= needed, "all rows of this precision");
        let mut first = 0;
        while first < blocks.count() {
            let count = (blocks.count() - first).min(V::SIDE_BY_SIDE);
            // SAFETY: the caller's promises; there are so many blocks, and rows of all inputs.
            unsafe {
                match count {
                    1 => self.times_some::<V, 1>(blocks, first),
                    2 => self.times_some::<V, 2>(blocks, first),
                    _ => self.times_some::<V, 3>(blocks, first),
                }
            }
            first += count;
        }
    }

    /// # Safety
    /// As of [`Self::times`]; there are `BLOCKS` blocks from `first` on.
    #[inline(always)]
    unsafe fn times_some<V: FewVector, const BLOCKS: usize>(&self, blocks: &impl SideBySide<V>, first: usize) {
        // SAFETY: the caller's promises.
        unsafe {
            match self.rows {
                1 => self.tile::<V, 1, BLOCKS>(blocks, first),
                2 => self.tile::<V, 2, BLOCKS>(blocks, first),
                3 => self.tile::<V, 3, BLOCKS>(blocks, first),
                FEW => self.tile::<V, FEW, BLOCKS>(blocks, first),
                _ => (),
            }
        }
    }

    /// The sums of these blocks with all rows.
    ///
    /// # Safety
    /// As of [`Self::times_some`]; there are `ROWS` rows.
    #[cfg_attr(not(unoptimised), inline(always))]
    unsafe fn tile<V: FewVector, const ROWS: usize, const BLOCKS: usize>(
        &self,
        blocks: &impl SideBySide<V>,
        first: usize,
    ) {
        // SAFETY: the caller has the instructions, the blocks, the rows and room for their products.
        unsafe {
            let a = match self.a {
                Slice::Bf16(numbers) => numbers.as_ptr().cast(),
                Slice::F32(numbers) => numbers.as_ptr().cast(),
            };
            let mut sums = Sums { of_rows: [[V::zero(); BLOCKS]; ROWS], a, a_stride: self.a_stride };
            blocks.widen::<_, BLOCKS>(first, &mut sums);
            for (row, sums) in sums.of_rows.iter().enumerate() {
                for (block, sum) in sums.iter().enumerate() {
                    let c = self.c.add(row * self.c_stride + (first + block) * LANES);
                    let total = V::zero().add(*sum);
                    if self.accumulate { total.add(V::load(c)).store(c) } else { total.store(c) }
                }
            }
        }
    }
}

/// Sums of products with rows.
struct Sums<V: FewVector, const ROWS: usize, const BLOCKS: usize> {
    of_rows: [[V; BLOCKS]; ROWS],
    /// The pair of the first row that is next.
    a: *const V::Activation,
    a_stride: usize,
}

impl<V: FewVector, const ROWS: usize, const BLOCKS: usize> Sink<V> for Sums<V, ROWS, BLOCKS> {
    #[inline(always)]
    unsafe fn put(&mut self, block: usize, pairs: V::Pairs) {
        for (row, sums) in self.of_rows.iter_mut().enumerate() {
            // SAFETY: the caller has the instructions, and whoever made this has so many rows.
            unsafe { sums[block] = sums[block].dot(self.a.add(row * self.a_stride), pairs) };
        }
    }

    #[inline(always)]
    unsafe fn go_on(&mut self) {
        // SAFETY: as above.
        self.a = unsafe { self.a.add(2) };
    }
}

/// Numbers of bf16 as those of f32.
struct ToF32<'a> {
    from: &'a [u16],
    to: &'a mut [f32],
}

impl Vectorized for ToF32<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (to, from) in self.to.iter_mut().zip(self.from) {
            *to = f32::from_bits(u32::from(*from) << 16);
        }
    }
}
