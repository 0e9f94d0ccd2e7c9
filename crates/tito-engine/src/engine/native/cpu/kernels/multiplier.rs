//! What computes products: an instruction set, and the tiles that it has configured for the last one.

use super::{
    KernelName, KernelSet, LANES,
    precision::PAIR,
    raw::{Along, Bf16Gemm, Gemm, MixedGemm, Piece},
    vector::Plain,
    walk::walk,
};

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use super::amx::Tiles;
#[cfg(target_arch = "x86_64")]
use super::vector::x86::{Avx2, Avx512, Avx512Bf16};

/// Computes products of one thread, one after the other. Tiles stay configured from one to the next: to configure them
/// takes as long as a product of 32 rows with 32 columns over 64 numbers.
pub(super) struct Multiplier {
    set: KernelSet,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    tiles: Tiles,
}

impl Multiplier {
    /// One with the instructions of `set`.
    pub(super) fn new(set: KernelSet) -> Self {
        Self {
            set,
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            tiles: Tiles::new(),
        }
    }

    /// Computes a product of bf16.
    ///
    /// # Safety
    /// The pointers are valid for what [`Gemm`] says, and nobody else uses C meanwhile.
    pub(super) unsafe fn bf16(&mut self, work: &Bf16Gemm) {
        debug_assert!(work.k.is_multiple_of(32), "bf16 is multiplied 32 numbers at a time");
        // SAFETY: the pointers are the caller's promise. That there is a set of this name shows that the processor has its
        // instructions, and for the tiles that the system lets this process use them.
        unsafe {
            match self.set.name() {
                #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
                KernelName::Amx if work.accumulate && !Tiles::sum_first(work) => self.sum_and_add(work),
                #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
                KernelName::Amx => self.tiles.multiply(work),
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

    /// Computes a product of bf16 in pieces whose B lies anywhere: `work` is the first of them. The result has the bits that it
    /// has if they are computed one by one.
    ///
    /// # Safety
    /// As of [`Multiplier::bf16`], for each of the pieces.
    pub(super) unsafe fn bf16_pieces(&mut self, work: &Bf16Gemm, along: Along, pieces: &[Piece<u16>]) {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if self.set.name() == KernelName::Amx && Tiles::takes_pieces(work, along) {
            // SAFETY: the caller's promise, and as of `bf16`.
            unsafe { self.tiles.multiply_pieces(work, along, pieces) };
            return;
        }
        for (index, piece) in pieces.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { self.bf16(&work.piece(along, index, piece)) };
        }
    }

    /// Adds to C what tiles made of the products alone: their own way to accumulate begins with C.
    ///
    /// # Safety
    /// As of [`Multiplier::bf16`]; the set is that of the tiles.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    unsafe fn sum_and_add(&mut self, work: &Bf16Gemm) {
        thread_local! {
            static SUMS: std::cell::RefCell<Vec<f32>> = const { std::cell::RefCell::new(Vec::new()) };
        }
        let columns = work.blocks * LANES;
        SUMS.with_borrow_mut(|sums| {
            sums.resize(work.rows * columns, 0.0);
            let into = Gemm { c: sums.as_mut_ptr(), c_stride: columns, accumulate: false, ..*work };
            // SAFETY: the caller's promises; `sums` has a row for each row of C.
            unsafe { self.tiles.multiply(&into) };
            for (row, sums) in sums.chunks_exact(columns.max(1)).take(work.rows).enumerate() {
                // SAFETY: the caller's promise.
                let c = unsafe { std::slice::from_raw_parts_mut(work.c.add(row * work.c_stride), columns) };
                self.set.vectorize(Add { to: c, from: sums });
            }
        });
    }

    /// Computes a product of activations in f32 with weights in bf16.
    ///
    /// # Safety
    /// As of [`Multiplier::bf16`].
    pub(super) unsafe fn mixed(&self, work: &MixedGemm) {
        debug_assert!(work.k.is_multiple_of(PAIR), "bf16 is widened a pair at a time");
        // SAFETY: as of `bf16`.
        unsafe {
            match self.set.name() {
                #[cfg(target_arch = "x86_64")]
                KernelName::Amx | KernelName::Avx512Bf16 | KernelName::Avx512 => avx512_mixed(work),
                #[cfg(target_arch = "x86_64")]
                KernelName::Avx2 => avx2_mixed(work),
                _ => walk::<Plain, u16, f32, 4, 1>(work),
            }
        }
    }

    /// Computes a product of f32.
    ///
    /// # Safety
    /// As of [`Multiplier::bf16`].
    pub(super) unsafe fn f32(&self, work: &Gemm<f32>) {
        // SAFETY: as of `bf16`.
        unsafe {
            match self.set.name() {
                #[cfg(target_arch = "x86_64")]
                KernelName::Amx | KernelName::Avx512Bf16 | KernelName::Avx512 => avx512(work),
                #[cfg(target_arch = "x86_64")]
                KernelName::Avx2 => avx2(work),
                _ => walk::<Plain, f32, f32, 4, 1>(work),
            }
        }
    }
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
