//! The engine's own kernels, in `rows.cu`.

use candle_core::{DType, Result, Tensor, bail};

use super::{
    address, device,
    launch::{Argument, Kernels, Launch, narrow},
    rows_of, sums_of,
};
use crate::engine::native::backend::{Gate, HeadRange, NormShape, Rotation};

/// The file of kernels.
pub(super) const ROWS: Kernels = Kernels { name: "rows", ptx: include_str!(concat!(env!("OUT_DIR"), "/rows.ptx")) };
/// Threads of a block.
pub(super) const THREADS: u32 = 256;
/// The most threads of a block of `norm`, each of which takes four numbers at a time.
const MOST_NORM_THREADS: usize = 512;
/// How many numbers of a row one block of `gate` computes, or of `put_vector` and `multiply_vector` writes.
const GATES: u32 = 1024;
/// Threads of a warp.
const WARP: u32 = 32;

/// A kernel for results of this type.
pub(super) fn for_type(name: &str, dtype: DType) -> Result<String> {
    match dtype {
        DType::BF16 => Ok(format!("{name}_bf16")),
        DType::F32 => Ok(format!("{name}_f32")),
        other => bail!("{name} gives bf16 and f32, not {other:?}"),
    }
}

fn weights_of(weight: &Tensor) -> Result<(u64, usize)> {
    if weight.dtype() != DType::F32 || !weight.is_contiguous() {
        bail!("a vector of weights is not of f32");
    }
    Ok((address(weight)?, weight.dims1()?))
}

/// Rows of a table of bf16 times a factor, for each id one.
pub(in super::super) fn embed(table: &Tensor, ids: &Tensor, factor: f32, out: &Tensor) -> Result<()> {
    let (from, known, width) = rows_of(table)?;
    let (to, rows, columns) = sums_of(out)?;
    if table.dtype() != DType::BF16 || ids.dtype() != DType::U32 || ids.dims1()? != rows || columns != width {
        bail!("{:?} ids of {known} rows of {width} {:?} to {rows} of {columns}", ids.shape(), table.dtype());
    }
    let arguments = [
        Argument::Address(from),
        Argument::Address(address(ids)?),
        Argument::Address(to),
        Argument::count(known)?,
        Argument::count(width)?,
        Argument::Number(factor),
    ];
    let parts = width.div_ceil(GATES as usize);
    let launch = Launch { file: &ROWS, kernel: "embed", rows, parts, threads: THREADS };
    // SAFETY: each of the rows has an id and `width` numbers, and the kernel reads no row after the last of the table.
    unsafe { launch.run(device(out)?, &arguments) }
}

pub(in super::super) fn norm(states: &Tensor, weight: &Tensor, norm: NormShape, out: &Tensor) -> Result<()> {
    let (from, rows, width) = sums_of(states)?;
    let (weight, len) = weights_of(weight)?;
    let (to, out_rows, out_width) = rows_of(out)?;
    if (rows, width) != (out_rows, out_width) || len != width || norm.centred {
        bail!("a norm of {rows} rows of {width} with {len} weights to {out_rows} of {out_width}");
    }
    let arguments = [
        Argument::Address(from),
        Argument::Address(weight),
        Argument::Address(to),
        Argument::count(width)?,
        Argument::Number(norm.epsilon),
        Argument::Number(norm.offset),
    ];
    let kernel = for_type("norm", out.dtype())?;
    let threads = narrow(width.div_ceil(4).next_multiple_of(WARP as usize).min(MOST_NORM_THREADS))?;
    let launch = Launch { file: &ROWS, kernel: &kernel, rows, parts: 1, threads };
    // SAFETY: `rows` rows of `width` numbers are read and as many written in the type of `out`, and `width` weights are
    // read, which were just counted.
    unsafe { launch.run(device(states)?, &arguments) }
}

/// Normalises whole rows less their mean; `out` may be the states.
pub(in super::super) fn centred_norm(states: &Tensor, weight: &Tensor, norm: NormShape, out: &Tensor) -> Result<()> {
    let (from, rows, width) = sums_of(states)?;
    let (weight, len) = weights_of(weight)?;
    let (to, out_rows, out_width) = rows_of(out)?;
    if (rows, width) != (out_rows, out_width) || len != width || !norm.centred {
        bail!("a centred norm of {rows} rows of {width} with {len} weights to {out_rows} of {out_width}");
    }
    let (from, weight, to) = (Argument::Address(from), Argument::Address(weight), Argument::Address(to));
    let (epsilon, offset) = (Argument::Number(norm.epsilon), Argument::Number(norm.offset));
    let arguments = [from, weight, to, Argument::count(width)?, epsilon, offset];
    let kernel = for_type("centred_norm", out.dtype())?;
    let launch = Launch { file: &ROWS, kernel: &kernel, rows, parts: 1, threads: THREADS };
    // SAFETY: `rows` rows of `width` numbers are read and as many written in the type of `out`, each by the thread that read it
    // last, and `width` weights are read, which were just counted.
    unsafe { launch.run(device(states)?, &arguments) }
}

/// Writes a vector to every row, or adds it.
pub(in super::super) fn put_vector(vector: &Tensor, out: &Tensor, added: bool) -> Result<()> {
    let (to, rows, width) = sums_of(out)?;
    let (from, len) = weights_of(vector)?;
    if len != width {
        bail!("a vector of {len} for {rows} rows of {width}");
    }
    let (from, to, added) = (Argument::Address(from), Argument::Address(to), Argument::count(usize::from(added))?);
    let arguments = [from, to, Argument::count(width)?, added];
    let launch =
        Launch { file: &ROWS, kernel: "put_vector", rows, parts: width.div_ceil(GATES as usize), threads: THREADS };
    // SAFETY: the vector has `width` numbers, as each of the rows has.
    unsafe { launch.run(device(out)?, &arguments) }
}

/// Multiplies every row by a vector, number by number.
pub(in super::super) fn multiply_vector(vector: &Tensor, to: &Tensor) -> Result<()> {
    let (at, rows, width) = sums_of(to)?;
    let (by, len) = weights_of(vector)?;
    if len != width {
        bail!("a vector of {len} for {rows} rows of {width}");
    }
    let arguments = [Argument::Address(by), Argument::Address(at), Argument::count(width)?];
    let parts = width.div_ceil(GATES as usize);
    let launch = Launch { file: &ROWS, kernel: "multiply_vector", rows, parts, threads: THREADS };
    // SAFETY: the vector has `width` numbers, as each of the rows has.
    unsafe { launch.run(device(to)?, &arguments) }
}

/// Adds every row of `from`, times a factor, to that of `to`.
pub(in super::super) fn add_rows(from: &Tensor, factor: f32, to: &Tensor) -> Result<()> {
    let (from, from_rows, from_width) = sums_of(from)?;
    let (at, rows, width) = sums_of(to)?;
    if (from_rows, from_width) != (rows, width) {
        bail!("{from_rows} rows of {from_width} to add to {rows} of {width}");
    }
    let (from, at) = (Argument::Address(from), Argument::Address(at));
    let arguments = [from, at, Argument::count(width)?, Argument::Number(factor)];
    let parts = width.div_ceil(GATES as usize);
    let launch = Launch { file: &ROWS, kernel: "add_rows", rows, parts, threads: THREADS };
    // SAFETY: both have as many rows of as many numbers of f32, as was just compared.
    unsafe { launch.run(device(to)?, &arguments) }
}

pub(in super::super) fn head_norm(
    states: &Tensor,
    HeadRange { first, count, width }: HeadRange,
    weight: &Tensor,
    norm: NormShape,
) -> Result<()> {
    let (at, rows, columns) = sums_of(states)?;
    let (weight, len) = weights_of(weight)?;
    if (first + count) * width > columns || len != width || norm.centred {
        bail!("{count} heads of {width} numbers after {first} in a row of {columns}, with {len} weights");
    }
    let first = Argument::count(first * width)?;
    let (at, weight) = (Argument::Address(at), Argument::Address(weight));
    let arguments = [
        at,
        weight,
        Argument::count(columns)?,
        first,
        Argument::count(width)?,
        Argument::Number(norm.epsilon),
        Argument::Number(norm.offset),
    ];
    let launch = Launch { file: &ROWS, kernel: "head_norm", rows, parts: count, threads: WARP };
    // SAFETY: the last of the heads ends within its row, and there are `width` weights.
    unsafe { launch.run(device(states)?, &arguments) }
}

pub(in super::super) fn rotate(
    states: &Tensor,
    Rotation { first, heads, head_dim, neighbours, .. }: Rotation,
    cosines: &Tensor,
    sines: &Tensor,
) -> Result<()> {
    let (at, rows, columns) = sums_of(states)?;
    let (cosines, angle_rows, pairs) = sums_of(cosines)?;
    let (sines, sine_rows, sine_pairs) = sums_of(sines)?;
    let fits = (first + heads) * head_dim <= columns && 2 * pairs <= head_dim;
    if (angle_rows, pairs) != (sine_rows, sine_pairs) || angle_rows != rows || !fits {
        bail!("{pairs} pairs in {heads} heads of {head_dim} numbers in {rows} rows of {columns}");
    }
    let (at, cosines, sines) = (Argument::Address(at), Argument::Address(cosines), Argument::Address(sines));
    let arguments = [
        at,
        cosines,
        sines,
        Argument::count(columns)?,
        Argument::count(first * head_dim)?,
        Argument::count(heads)?,
        Argument::count(head_dim)?,
        Argument::count(pairs)?,
        Argument::count(usize::from(neighbours))?,
    ];
    let parts = (heads * pairs).div_ceil(THREADS as usize);
    let launch = Launch { file: &ROWS, kernel: "rotate", rows, parts, threads: THREADS };
    // SAFETY: the heads end within their row, the pairs within their head, and each row has `pairs` cosines and sines.
    unsafe { launch.run(device(states)?, &arguments) }
}

pub(in super::super) fn gate(states: &Tensor, gate: Gate, width: usize, out: &Tensor) -> Result<()> {
    let (from, rows, columns) = sums_of(states)?;
    let (to, out_rows, out_width) = rows_of(out)?;
    if columns != gate.inputs(width) || (rows, width) != (out_rows, out_width) {
        bail!("gates of {rows} rows of {columns} to {out_rows} of {out_width}");
    }
    // The numbers by which `rows.cu` tells gates apart.
    let (kind, limit) = match gate {
        Gate::Silu => (0, 0.0),
        Gate::GeluTanh => (1, 0.0),
        Gate::Clamped { limit } => (2, limit),
        Gate::SquaredRelu => (3, 0.0),
        Gate::Gelu => (4, 0.0),
        Gate::GeluAlone => (5, 0.0),
        Gate::GeluTanhAlone | Gate::Xielu(_) => bail!("{gate:?} has no kernel"),
    };
    let (from, to) = (Argument::Address(from), Argument::Address(to));
    let (columns, kind) = (Argument::count(columns)?, Argument::count(kind)?);
    let arguments = [from, to, columns, Argument::count(width)?, kind, Argument::Number(limit)];
    let parts = width.div_ceil(GATES as usize);
    let kernel = for_type("gate", out.dtype())?;
    let launch = Launch { file: &ROWS, kernel: &kernel, rows, parts, threads: THREADS };
    // SAFETY: each row has what the gate reads, and room for `width` results in the type of `out`.
    unsafe { launch.run(device(states)?, &arguments) }
}

/// Writes numbers of every row, from `first` on, to `out` in its type; marks in `broken` the rows with one that is not
/// finite there.
pub(super) fn new_keys(states: &Tensor, first: usize, out: &Tensor, broken: &Tensor) -> Result<()> {
    let (from, rows, columns) = sums_of(states)?;
    let (to, out_rows, width) = rows_of(out)?;
    let (marks, flags) = weights_of(broken)?;
    if first + width > columns || out_rows != rows || flags != rows {
        bail!("{width} numbers from {first} on of {rows} rows of {columns} to {out_rows} rows with {flags} marks");
    }
    let (from, to, marks) = (Argument::Address(from), Argument::Address(to), Argument::Address(marks));
    let arguments = [from, to, marks, Argument::count(columns)?, Argument::count(first)?, Argument::count(width)?];
    let kernel = for_type("new_keys", out.dtype())?;
    let launch = Launch { file: &ROWS, kernel: &kernel, rows, parts: 1, threads: THREADS };
    // SAFETY: the numbers end within their row, `out` has a row for each in its type, and there is a mark for each.
    unsafe { launch.run(device(states)?, &arguments) }
}
