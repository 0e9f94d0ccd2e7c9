//! Sums over rows of logits, in `summary.cu`.

use candle_core::{DType, Result, Tensor, bail};

use super::{
    super::summaries::Summaries,
    address, device, landed,
    launch::{Argument, Kernels, Launch, narrow},
    memory::unwritten,
    sums_of,
};
use crate::sampling::{SKIM_BLOCK, bits_per_logit};

pub(super) const SUMMARY: Kernels =
    Kernels { name: "summary", ptx: include_str!(concat!(env!("OUT_DIR"), "/summary.ptx")) };
/// How many threads a block has: as many as a block has logits, which `summary.cu` says too.
const THREADS: u32 = 256;
const _: () = assert!(SKIM_BLOCK == 256, "the blocks are those of summary.cu");
/// Threads that count a row.
const COUNTING_THREADS: u32 = 1024;

/// Sums that are wanted of some rows, all by addresses.
pub(super) struct RowSums {
    /// The number of each row.
    pub(super) numbers: u64,
    /// For each kind of sum, the factor of each row's logits.
    pub(super) bits: u64,
    /// Where the greatest logit of each block of each row is written.
    pub(super) maxima: u64,
    /// For each kind, where the sum of each block of each row is written.
    pub(super) sums: u64,
    pub(super) rows: usize,
    pub(super) kinds: usize,
}

/// Computes sums over the blocks of some rows.
///
/// # Safety
/// Each address is that of as many numbers as its field says, and the numbers are those of rows of `logits`.
pub(super) unsafe fn sum_rows(
    logits: &Tensor,
    RowSums { numbers, bits, maxima, sums, rows, kinds }: RowSums,
) -> Result<()> {
    let (at, _, width) = sums_of(logits)?;
    let parts = width.div_ceil(SKIM_BLOCK);
    let [at, numbers, maxima] = [at, numbers, maxima].map(Argument::Address);
    let width = Argument::count(width)?;
    let launch = |kernel| Launch { file: &SUMMARY, kernel, rows, parts, threads: THREADS };
    // SAFETY: as the caller says; all rows are `width` long.
    unsafe { launch("block_maxima").run(device(logits)?, &[at, numbers, maxima, width])? };
    let [bits, sums] = [bits, sums].map(Argument::Address);
    let arguments = [at, numbers, maxima, bits, sums, width, Argument::count(kinds)?];
    // SAFETY: as above.
    unsafe { launch("block_sums").run(device(logits)?, &arguments) }
}

/// How many kinds of sums rows at these temperatures have: one where all are 1, else those at 1 and those at the temperatures. And for
/// each kind, the factor of each row's logits.
pub(super) fn factors(temperatures: impl ExactSizeIterator<Item = f64> + Clone) -> (usize, Vec<f64>) {
    let mut bits = vec![bits_per_logit(1.0); temperatures.len()];
    #[expect(clippy::float_cmp, reason = "one weight is the other only at this temperature")]
    if temperatures.clone().all(|temperature| temperature == 1.0) {
        return (1, bits);
    }
    bits.extend(temperatures.map(bits_per_logit));
    (2, bits)
}

/// Summaries of some rows, each at its temperature.
pub(in super::super) fn summarize(logits: &Tensor, rows: &[(usize, f64)]) -> Result<Summaries> {
    let (_, count, width) = sums_of(logits)?;
    let blocks = width.div_ceil(SKIM_BLOCK);
    let (kinds, bits) = factors(rows.iter().map(|(_, temperature)| *temperature));
    // One copy takes both to the device: the bits first, as they are wider.
    let mut words: Vec<u32> = bytemuck::cast_slice(&bits).to_vec();
    let first_number = words.len();
    words.extend(numbers_of_rows(rows.iter().map(|(row, _)| *row), count)?);
    let words = Tensor::new(words, logits.device())?;
    let (bits, numbers) = (address(&words)?, address(&words.narrow(0, first_number, rows.len())?)?);
    // And one brings both back: the sums, and the maxima in halves of as many bits.
    let [all_sums, all_maxima] = [kinds * rows.len() * blocks, rows.len() * blocks];
    // SAFETY: the two kernels write a maximum and `kinds` sums for each block of each row; half a number may be left, which
    // nobody reads.
    let found = unsafe { unwritten(all_sums + all_maxima.div_ceil(2), DType::F64, logits.device())? };
    let (sums, maxima) = (address(&found)?, address(&found.narrow(0, all_sums, all_maxima.div_ceil(2))?)?);
    let wanted = RowSums { numbers, bits, maxima, sums, rows: rows.len(), kinds };
    // SAFETY: `numbers_of_rows` took numbers of rows that there are. There is a maximum for each block of each row; of each
    // kind there are bits for each row, and a sum for each block of each row.
    unsafe { sum_rows(logits, wanted)? };
    let mut raw: Vec<f64> = landed(&found)?;
    let maxima: Vec<f32> = bytemuck::cast_slice(&raw.split_off(all_sums))[..all_maxima].to_vec();
    let scaled = if kinds == 1 { raw.clone() } else { raw.split_off(rows.len() * blocks) };
    Ok(Summaries { maxima, raw, scaled })
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
    // SAFETY: the kernel writes every number of each block.
    let out = unsafe { unwritten(wanted.len() * SKIM_BLOCK, DType::F32, logits.device())? };
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
    let mut words = numbers_of_rows(chosen.iter().map(|(row, _)| *row), count)?;
    words.extend(chosen.iter().map(|(_, logit)| logit.to_bits()));
    let words = Tensor::new(words, logits.device())?;
    let least = address(&words.narrow(0, chosen.len(), chosen.len())?)?;
    // SAFETY: the kernel writes a count for each row.
    let counts = unsafe { unwritten(chosen.len(), DType::U32, logits.device())? };
    let [rows, least] = [Argument::Address(address(&words)?), Argument::Address(least)];
    let arguments = [Argument::Address(at), rows, least, Argument::Address(address(&counts)?), Argument::count(width)?];
    let launch =
        Launch { file: &SUMMARY, kernel: "count_at_least", rows: chosen.len(), parts: 1, threads: COUNTING_THREADS };
    // SAFETY: `numbers_of_rows` took numbers of rows that there are, all of them `width` long; there is a logit to compare with
    // and a count for each.
    unsafe { launch.run(device(logits)?, &arguments)? };
    landed(&counts)
}

/// Numbers of rows as kernels count, all below `count`.
pub(super) fn numbers_of_rows(rows: impl Iterator<Item = usize>, count: usize) -> Result<Vec<u32>> {
    rows.map(|row| if row < count { narrow(row) } else { bail!("row {row} of {count}") }).collect()
}
