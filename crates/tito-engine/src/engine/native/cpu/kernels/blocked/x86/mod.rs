//! Vectors of blocks on x86-64.

mod avx2;
mod avx512;

use super::{
    super::vector::x86::{Avx2, Avx512, Avx512Bf16},
    block::Layout,
    vectors::{Work, run},
};

/// Does work on blocks.
///
/// # Safety
/// The processor has AVX-512 with dot products of bf16, and all that `avx512` asks for.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")]
pub(super) unsafe fn avx512_bf16(layout: &Layout, work: impl Work) {
    // SAFETY: this function is compiled for the instructions of its vectors.
    unsafe { run::<Avx512Bf16>(layout, work) }
}

/// Does work on blocks.
///
/// # Safety
/// The processor has AVX-512, and AVX2 with fused sums.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
pub(super) unsafe fn avx512(layout: &Layout, work: impl Work) {
    // SAFETY: as above.
    unsafe { run::<Avx512>(layout, work) }
}

/// Does work on blocks.
///
/// # Safety
/// The processor has AVX2 with fused sums.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn avx2(layout: &Layout, work: impl Work) {
    // SAFETY: as above.
    unsafe { run::<Avx2>(layout, work) }
}
