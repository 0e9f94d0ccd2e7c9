//! The engine's own kernels of attention within segments, in `segments.cu`.

use candle_core::{DType, Result, Tensor, bail};

use super::{
    address, device,
    launch::{Argument, Kernels, Launch},
    memory::unwritten,
    rows::{THREADS, for_type},
    rows_of, sums_of,
};
use crate::engine::native::backend::SegmentHeads;

/// The file of kernels.
const SEGMENTS: Kernels = Kernels { name: "segments", ptx: include_str!(concat!(env!("OUT_DIR"), "/segments.ptx")) };
/// How many numbers of a row one block moves.
const MOVED: usize = 1024;

/// Queries, keys or values of rows, which begin at number `first`, in the type of `dtype`: `[segments * heads, rows, head_dim]`
/// of segments of `rows` rows each.
pub(in super::super) fn split_heads(
    states: &Tensor,
    first: usize,
    rows: usize,
    SegmentHeads { heads, head_dim, .. }: SegmentHeads,
    dtype: DType,
) -> Result<Tensor> {
    let (from, all, columns) = sums_of(states)?;
    if first + heads * head_dim > columns || all % rows != 0 {
        bail!("{heads} heads of {head_dim} from {first} on of {all} rows of {columns}, {rows} in a segment");
    }
    // SAFETY: the kernel writes each number of each head of each row.
    let out = unsafe { unwritten((all / rows * heads, rows, head_dim), dtype, states.device())? };
    let arguments = [
        Argument::Address(from),
        Argument::Address(address(&out)?),
        Argument::count(columns)?,
        Argument::count(first)?,
        Argument::count(rows)?,
        Argument::count(heads)?,
        Argument::count(head_dim)?,
    ];
    let (kernel, parts) = (for_type("split_heads", dtype)?, (heads * head_dim).div_ceil(MOVED));
    let launch = Launch { file: &SEGMENTS, kernel: &kernel, rows: all, parts, threads: THREADS };
    // SAFETY: the heads end within their row, and there is a place for each number in the type of `out`.
    unsafe { launch.run(device(states)?, &arguments)? };
    Ok(out)
}

/// Writes `[segments * heads, rows, head_dim]` of f32 to rows of all heads, in their type.
pub(in super::super) fn join_heads(
    apart: &Tensor,
    SegmentHeads { heads, head_dim, .. }: SegmentHeads,
    out: &Tensor,
) -> Result<()> {
    let (batches, rows, width) = apart.dims3()?;
    let (to, all, columns) = rows_of(out)?;
    let fits = apart.dtype() == DType::F32 && apart.is_contiguous();
    if !fits
        || batches % heads != 0
        || all != batches / heads * rows
        || (width, columns) != (head_dim, heads * head_dim)
    {
        bail!("{:?} of {heads} heads to {all} rows of {columns}", apart.shape());
    }
    let arguments = [
        Argument::Address(address(apart)?),
        Argument::Address(to),
        Argument::count(rows)?,
        Argument::count(heads)?,
        Argument::count(head_dim)?,
    ];
    let (kernel, parts) = (for_type("join_heads", out.dtype())?, columns.div_ceil(MOVED));
    let launch = Launch { file: &SEGMENTS, kernel: &kernel, rows: all, parts, threads: THREADS };
    // SAFETY: there are as many numbers on both sides, which were just counted.
    unsafe { launch.run(device(out)?, &arguments) }
}

/// The softmax of scores times a factor, row by row, in the type of `dtype`: `[batches, queries, keys]`.
pub(in super::super) fn weights(scores: &Tensor, scale: f32, dtype: DType) -> Result<Tensor> {
    let (batches, queries, keys) = scores.dims3()?;
    if scores.dtype() != DType::F32 || !scores.is_contiguous() {
        bail!("scores with gaps, or of {:?}", scores.dtype());
    }
    // SAFETY: the kernel writes a weight for each score.
    let out = unsafe { unwritten(scores.shape(), dtype, scores.device())? };
    let arguments = [
        Argument::Address(address(scores)?),
        Argument::Address(address(&out)?),
        Argument::count(keys)?,
        Argument::Number(scale),
    ];
    let kernel = for_type("weights", dtype)?;
    let launch = Launch { file: &SEGMENTS, kernel: &kernel, rows: batches * queries, parts: 1, threads: THREADS };
    // SAFETY: each row has `keys` scores, and `out` as many numbers of its type.
    unsafe { launch.run(device(scores)?, &arguments)? };
    Ok(out)
}
