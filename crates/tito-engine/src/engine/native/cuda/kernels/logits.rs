//! Sums over rows of logits, in `summary.cu`.

use candle_core::{DType, Result, Tensor, bail};

use super::{
    super::summaries::Summaries,
    address, device, landed,
    launch::{Argument, Kernels, Launch, narrow},
    sums_of,
};
use crate::sampling::{SKIM_BLOCK, bits_per_logit};

const SUMMARY: Kernels = Kernels { name: "summary", ptx: include_str!(concat!(env!("OUT_DIR"), "/summary.ptx")) };
/// How many threads a block has: as many as a block has logits, which `summary.cu` says too.
const THREADS: u32 = 256;
const _: () = assert!(SKIM_BLOCK == 256, "the blocks are those of summary.cu");
/// Threads that count a row.
const COUNTING_THREADS: u32 = 1024;

/// Summaries of some rows, each at its temperature.
pub(in super::super) fn summarize(logits: &Tensor, rows: &[(usize, f64)]) -> Result<Summaries> {
    let (at, count, width) = sums_of(logits)?;
    let blocks = width.div_ceil(SKIM_BLOCK);
    let numbers = send_rows(logits, rows.iter().map(|(row, _)| *row), count)?;
    #[expect(clippy::float_cmp, reason = "one weight is the other only at this temperature")]
    let plain = rows.iter().all(|(_, temperature)| *temperature == 1.0);
    let kinds = if plain { 1 } else { 2 };
    let mut bits = vec![bits_per_logit(1.0); rows.len()];
    if !plain {
        bits.extend(rows.iter().map(|(_, temperature)| bits_per_logit(*temperature)));
    }
    let bits = Tensor::new(bits, logits.device())?;
    let maxima = Tensor::zeros(rows.len() * blocks, DType::F32, logits.device())?;
    let sums = Tensor::zeros(kinds * rows.len() * blocks, DType::F64, logits.device())?;
    let [at, numbers, width] = [Argument::Address(at), Argument::Address(address(&numbers)?), Argument::count(width)?];
    let greatest = Argument::Address(address(&maxima)?);
    let launch = |kernel| Launch { file: &SUMMARY, kernel, rows: rows.len(), parts: blocks, threads: THREADS };
    // SAFETY: `send_rows` took numbers of rows that there are, all of them `width` long, and there is a maximum for each
    // block of each.
    unsafe { launch("block_maxima").run(device(logits)?, &[at, numbers, greatest, width])? };
    let (bits, out) = (Argument::Address(address(&bits)?), Argument::Address(address(&sums)?));
    let arguments = [at, numbers, greatest, bits, out, width, Argument::count(kinds)?];
    // SAFETY: as above; of each kind there are bits for each row, and a sum for each block of each row.
    unsafe { launch("block_sums").run(device(logits)?, &arguments)? };
    let mut raw: Vec<f64> = landed(&sums)?;
    let scaled = if plain { raw.clone() } else { raw.split_off(rows.len() * blocks) };
    Ok(Summaries { maxima: landed(&maxima)?, raw, scaled })
}

/// The logits of `(row, block)`, one block after another.
pub(in super::super) fn blocks_of(logits: &Tensor, wanted: &[(usize, u32)]) -> Result<Vec<f32>> {
    let (at, rows, width) = sums_of(logits)?;
    if let Some((row, block)) =
        wanted.iter().find(|(row, block)| *row >= rows || *block as usize >= width.div_ceil(SKIM_BLOCK))
    {
        bail!("block {block} of row {row} of {rows} rows of {width}");
    }
    let mut pairs = Vec::with_capacity(2 * wanted.len());
    for (row, block) in wanted {
        pairs.extend([narrow(*row)?, *block]);
    }
    let pairs = Tensor::new(pairs, logits.device())?;
    let out = Tensor::zeros(wanted.len() * SKIM_BLOCK, DType::F32, logits.device())?;
    let [pairs, to] = [Argument::Address(address(&pairs)?), Argument::Address(address(&out)?)];
    let arguments = [Argument::Address(at), pairs, to, Argument::count(width)?];
    let launch = Launch { file: &SUMMARY, kernel: "blocks_of", rows: wanted.len(), parts: 1, threads: THREADS };
    // SAFETY: every row and block that is wanted was looked for, and `out` has a block for each.
    unsafe { launch.run(device(logits)?, &arguments)? };
    landed(&out)
}

/// For each `(row, logit)` how many logits of the row are at least that.
pub(in super::super) fn count_at_least(logits: &Tensor, chosen: &[(usize, f32)]) -> Result<Vec<u32>> {
    let (at, count, width) = sums_of(logits)?;
    let rows = send_rows(logits, chosen.iter().map(|(row, _)| *row), count)?;
    let least: Vec<f32> = chosen.iter().map(|(_, logit)| *logit).collect();
    let least = Tensor::new(least, logits.device())?;
    let counts = Tensor::zeros(chosen.len(), DType::U32, logits.device())?;
    let [rows, least] = [Argument::Address(address(&rows)?), Argument::Address(address(&least)?)];
    let arguments = [Argument::Address(at), rows, least, Argument::Address(address(&counts)?), Argument::count(width)?];
    let launch =
        Launch { file: &SUMMARY, kernel: "count_at_least", rows: chosen.len(), parts: 1, threads: COUNTING_THREADS };
    // SAFETY: `send_rows` took numbers of rows that there are, all of them `width` long; there is a logit to compare with
    // and a count for each.
    unsafe { launch.run(device(logits)?, &arguments)? };
    landed(&counts)
}

/// Numbers of rows on the device, all below `count`.
fn send_rows(logits: &Tensor, rows: impl Iterator<Item = usize>, count: usize) -> Result<Tensor> {
    let rows: Vec<u32> =
        rows.map(|row| if row < count { narrow(row) } else { bail!("row {row} of {count}") }).collect::<Result<_>>()?;
    Tensor::new(rows, logits.device())
}
