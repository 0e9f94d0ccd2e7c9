//! Tokens that the device draws, by `draw_tokens` in `summary.cu`.

use candle_core::{DType, Result, Tensor};

use super::{
    super::{buffer::TensorKind, draw_memory::DrawMemory},
    address, device, landed,
    launch::{Argument, Launch},
    logits::{RowSums, SUMMARY, factors, numbers_of_rows, sum_rows},
    sums_of,
};
use crate::sampling::{DeviceDraw, Drawn, SKIM_BLOCK};

/// Threads that draw a token, `DRAWING` in `summary.cu`.
const THREADS: u32 = 1024;
/// Words of 32 bits of what is drawn of a row, `Drawn` there.
const DRAWN_WORDS: usize = 6;

/// What the device is told of draws: numbers of 64 bits first, then those of 32.
struct Told {
    /// How many kinds of sums are made: one where all weights are at the temperature 1, else two.
    kinds: usize,
    words: Vec<u32>,
}

impl Told {
    fn new(draws: &[(usize, DeviceDraw)], rows: usize) -> Result<Self> {
        let (kinds, mut numbers) = factors(draws.iter().map(|(_, draw)| draw.temperature()));
        numbers.extend(draws.iter().map(|(_, draw)| match draw {
            DeviceDraw::Share { uniform, .. } => *uniform,
            DeviceDraw::Best | DeviceDraw::Given(_) => 0.0,
        }));
        let mut words: Vec<u32> = bytemuck::cast_slice(&numbers).to_vec();
        words.extend(numbers_of_rows(draws.iter().map(|(row, _)| *row), rows)?);
        // `Way` in `summary.cu`.
        words.extend(draws.iter().map(|(_, draw)| match draw {
            DeviceDraw::Best => 0,
            DeviceDraw::Share { .. } => 1,
            DeviceDraw::Given(_) => 2,
        }));
        words.extend(draws.iter().map(|(_, draw)| if let DeviceDraw::Given(id) = draw { *id } else { 0 }));
        Ok(Self { kinds, words })
    }
}

/// Draws from rows of logits, each given by its number.
pub(in super::super) fn draw_tokens(
    logits: &Tensor,
    draws: &[(usize, DeviceDraw)],
    DrawMemory { allocations, told: memory, sums, drawn }: &mut DrawMemory,
) -> Result<Vec<Drawn>> {
    if draws.is_empty() {
        return Ok(Vec::new());
    }
    let ((at, count, width), rows) = (sums_of(logits)?, draws.len());
    if let Some((_, draw)) =
        draws.iter().find(|(_, draw)| matches!(draw, DeviceDraw::Given(id) if *id as usize >= width))
    {
        candle_core::bail!("{draw:?} of {width} tokens");
    }
    let Told { kinds, words } = Told::new(draws, count)?;
    let kind = |dtype| TensorKind { device: logits.device(), dtype, allocations };
    let told = memory.write(kind(DType::U32), &words, (1, words.len()))?.squeeze(0)?;
    let blocks = width.div_ceil(SKIM_BLOCK);
    let [all_sums, all_maxima] = [kinds * rows * blocks, rows * blocks];
    // Maxima have half as many bits.
    let partial = sums.room(kind(DType::F64), all_sums + all_maxima.div_ceil(2))?;
    let results = drawn.room(kind(DType::U32), rows * DRAWN_WORDS)?;
    let wanted = RowSums {
        numbers: address(&told.narrow(0, 2 * (kinds + 1) * rows, rows)?)?,
        bits: address(&told)?,
        maxima: address(&partial.narrow(0, all_sums, all_maxima.div_ceil(2))?)?,
        sums: address(&partial)?,
        rows,
        kinds,
    };
    let addresses = [at, wanted.maxima, wanted.sums, wanted.bits, wanted.numbers, address(&results)?];
    let mut arguments: Vec<Argument> = addresses.map(Argument::Address).into();
    for count in [width, blocks, kinds] {
        arguments.push(Argument::count(count)?);
    }
    // SAFETY: `Told` took numbers of rows that there are, and has bits of each kind and a uniform number for each of them. There is
    // room for a maximum of each block of each row, and for sums of each kind.
    unsafe { sum_rows(logits, wanted)? };
    let launch = Launch { file: &SUMMARY, kernel: "draw_tokens", rows, parts: 1, threads: THREADS };
    // SAFETY: as above; ways and ids follow the numbers of the rows, ids are less than `width`, and there is room for what is drawn
    // of each row.
    unsafe { launch.run(device(logits)?, &arguments)? };
    let words: Vec<u32> = landed(&results)?;
    let (results, _) = words.as_chunks::<DRAWN_WORDS>();
    Ok(results.iter().map(of_words).collect())
}

fn of_words(&[id, logit, max, at_least, low, high]: &[u32; DRAWN_WORDS]) -> Drawn {
    let total = f64::from_bits(u64::from(high) << 32 | u64::from(low));
    Drawn { id, logit: f32::from_bits(logit), max: f32::from_bits(max), at_least, total }
}
