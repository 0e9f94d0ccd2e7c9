//! What is done number by number: norms, rotations, gates.
//!
//! Each operation is one kernel on CUDA, and a handful of candle's elsewhere; both in f32.

use std::ops::Range;

use candle_core::{D, Result, Tensor};

/// Root-mean-square norm of every row.
pub(super) fn norm(states: &Tensor, weight: &Tensor, epsilon: f32, out: &Tensor) -> Result<()> {
    #[cfg(feature = "cuda")]
    if states.device().is_cuda() {
        return super::kernels::norm(states, weight, epsilon, out);
    }
    out.slice_set(&normed(states, weight, epsilon)?.to_dtype(out.dtype())?, 0, 0)
}

/// The same for some heads of every row, in place; a head has the weight's length.
pub(super) fn head_norm(states: &Tensor, heads: Range<usize>, weight: &Tensor, epsilon: f32) -> Result<()> {
    #[cfg(feature = "cuda")]
    if states.device().is_cuda() {
        return super::kernels::head_norm(states, heads, weight, epsilon);
    }
    let (rows, head_dim) = (states.dim(0)?, weight.dim(0)?);
    let (first, width) = (heads.start * head_dim, heads.len() * head_dim);
    let part = states.narrow(1, first, width)?.contiguous()?.reshape((rows * heads.len(), head_dim))?;
    states.slice_set(&normed(&part, weight, epsilon)?.reshape((rows, width))?, 1, first)
}

/// Rotates the first half of each of the first `heads` heads against its second half, in place; a row has `head_dim / 2`
/// cosines and sines.
pub(super) fn rotate(states: &Tensor, heads: usize, cosines: &Tensor, sines: &Tensor) -> Result<()> {
    #[cfg(feature = "cuda")]
    if states.device().is_cuda() {
        return super::kernels::rotate(states, heads, cosines, sines);
    }
    let (rows, half) = cosines.dims2()?;
    let part = states.narrow(1, 0, heads * 2 * half)?.contiguous()?.reshape((rows, heads, 2 * half))?;
    let (first, second) = (part.narrow(2, 0, half)?, part.narrow(2, half, half)?);
    let (cosines, sines) = (cosines.unsqueeze(1)?, sines.unsqueeze(1)?);
    let x = (first.broadcast_mul(&cosines)? - second.broadcast_mul(&sines)?)?;
    let y = (second.broadcast_mul(&cosines)? + first.broadcast_mul(&sines)?)?;
    let rotated = Tensor::cat(&[x, y], 2)?;
    states.slice_set(&rotated.reshape((rows, heads * 2 * half))?, 1, 0)
}

/// `silu(gate) * up` of every row, which holds `width` gates and then as many ups.
pub(super) fn gated_silu(states: &Tensor, width: usize, out: &Tensor) -> Result<()> {
    #[cfg(feature = "cuda")]
    if states.device().is_cuda() {
        return super::kernels::gated_silu(states, width, out);
    }
    let gated = (states.narrow(1, 0, width)?.silu()? * states.narrow(1, width, width)?)?;
    out.slice_set(&gated.to_dtype(out.dtype())?, 0, 0)
}

fn normed(rows: &Tensor, weight: &Tensor, epsilon: f32) -> Result<Tensor> {
    let mean = rows.sqr()?.mean_keepdim(D::Minus1)?;
    let scale = (mean + f64::from(epsilon))?.sqrt()?.recip()?;
    rows.broadcast_mul(&scale)?.broadcast_mul(weight)
}
