//! Inner loops that need instructions of one processor family.
//!
//! Owns the crate's unsafe code. Refuses to check what it is given: lengths, strides and which instructions there are
//! have been checked by the callers.

#![expect(unsafe_code, reason = "raw instructions on memory whose bounds the callers have checked")]

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx;

/// `C[m][n] (+)= sum over k of A[m][k] * B[k][n]`, bf16 times bf16 in f32.
///
/// What one element of C becomes depends on its row of A, its column of B and what C held, and on nothing else.
pub(super) struct Bf16Gemm {
    /// The first row of A: bf16, `rows` rows of `k`.
    pub a: *const u16,
    /// Elements between rows of A, at least `k`.
    pub a_stride: usize,
    /// M, any.
    pub rows: usize,
    /// B in blocks of 16 columns, each `[k / 2][16][2]` bf16.
    pub b: *const u16,
    /// Elements between blocks of B, at least `16 * k`.
    pub b_block_stride: usize,
    /// N / 16, any.
    pub blocks: usize,
    /// A multiple of 32.
    pub k: usize,
    /// The first row of C: `rows` rows of `16 * blocks`.
    pub c: *mut f32,
    /// Elements between rows of C, at least `16 * blocks`.
    pub c_stride: usize,
    /// Add to what C holds, else overwrite it.
    pub accumulate: bool,
}
