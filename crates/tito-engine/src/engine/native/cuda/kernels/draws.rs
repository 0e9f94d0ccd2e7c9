//! Tokens that the device draws, by `draw_tokens` in `summary.cu`.

use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor};

use super::{
    super::{buffer::TensorKind, draw_memory::DrawMemory, host},
    Coming, Landing, address, device,
    edited_rows::{Edited, MOST_EDITED, Source, ToldEdits},
    landed,
    launch::{Argument, Launch},
    logits::{RowSums, SUMMARY, factors, numbers_of_rows, sum_rows},
    sums_of,
};
use crate::sampling::{DeviceDraw, DevicePick, Drawn, LogprobsMode, SKIM_BLOCK, bits_per_logit};

/// Threads that draw a token, `DRAWING` in `summary.cu`.
const THREADS: u32 = 1024;
/// Words of 32 bits of what is drawn of a row, `Drawn` there.
const DRAWN_WORDS: usize = 6;

/// What the device is told of draws, by addresses. Those that edit their rows come last.
#[derive(Clone, Copy)]
struct Told {
    /// How many kinds of sums are made: one where all weights are at the temperature 1, else two.
    kinds: usize,
    /// The factors of each kind for each row.
    bits: u64,
    /// The factors of the weights that each draw takes a share of.
    draw_bits: u64,
    uniforms: u64,
    numbers: u64,
    ways: u64,
    given: u64,
    edits: ToldEdits,
}

/// Bytes of a number.
const WIDE: usize = size_of::<f64>();
const NARROW: usize = size_of::<u32>();

impl Told {
    /// What is told of draws, which go to memory at `at`: numbers of 64 bits first, then those of 32.
    fn new(draws: &[&(usize, DeviceDraw)], edited: usize, rows: usize) -> Result<(Vec<u32>, impl Fn(u64) -> Self)> {
        let (kinds, mut wide) = factors(draws.iter().map(|(_, draw)| draw.pick.temperature()));
        let draw_bits = wide.len();
        wide.extend(draws.iter().map(|(_, draw)| bits_per_logit(draw.pick.temperature())));
        let uniforms = wide.len();
        wide.extend(draws.iter().map(|(_, draw)| match draw.pick {
            DevicePick::Share { uniform, .. } => uniform,
            DevicePick::Best | DevicePick::Given(_) => 0.0,
        }));
        let edits = || draws[draws.len() - edited..].iter().map(|(_, draw)| &draw.edits);
        let factors = ToldEdits::factors(edits(), &mut wide);
        let mut words: Vec<u32> = bytemuck::cast_slice(&wide).to_vec();
        let numbers = words.len();
        words.extend(numbers_of_rows(draws.iter().map(|(row, _)| *row), rows)?);
        let ways = words.len();
        words.extend(draws.iter().map(|(_, draw)| way(draw)));
        let given = words.len();
        words.extend(draws.iter().map(|(_, draw)| if let DevicePick::Given(id) = draw.pick { id } else { 0 }));
        let edits = ToldEdits::words(edits(), factors, &mut words)?;
        let told = move |at| {
            let [draw_bits, uniforms] = [draw_bits, uniforms].map(|place| at + (place * WIDE) as u64);
            let [numbers, ways, given] = [numbers, ways, given].map(|place| at + (place * NARROW) as u64);
            Self { kinds, bits: at, draw_bits, uniforms, numbers, ways, given, edits: edits.at(at) }
        };
        Ok((words, told))
    }
}

/// `Way` in `summary.cu`, and what the token is described by.
fn way(draw: &DeviceDraw) -> u32 {
    let way = match draw.pick {
        DevicePick::Best => 0,
        DevicePick::Share { .. } => 1,
        DevicePick::Given(_) => 2,
    };
    match draw.logprobs_mode {
        LogprobsMode::Raw => way,
        LogprobsMode::Processed => way + 4,
    }
}

/// Draws from rows of logits, each given by its number.
pub(in super::super) fn draw_tokens(
    logits: &Tensor,
    draws: &[(usize, DeviceDraw)],
    memory: &mut DrawMemory,
) -> Result<Vec<Drawn>> {
    if draws.is_empty() {
        return Ok(Vec::new());
    }
    let (_, count, width) = sums_of(logits)?;
    if let Some((_, draw)) =
        draws.iter().find(|(_, draw)| matches!(draw.pick, DevicePick::Given(id) if id as usize >= width))
    {
        candle_core::bail!("{draw:?} of {width} tokens");
    }
    // Those without edits first.
    let mut order: Vec<usize> = (0..draws.len()).collect();
    order.sort_by_key(|place| !draws[*place].1.edits.is_empty());
    let edited = draws.iter().filter(|(_, draw)| !draw.edits.is_empty()).count();
    let sorted: Vec<&(usize, DeviceDraw)> = order.iter().map(|place| &draws[*place]).collect();
    let (words, told) = Told::new(&sorted, edited, count)?;
    let [unedited, rows] = [draws.len() - edited, draws.len()];
    let found = drawn_of(&landed(&launch_draws(logits, (&words, &told), [unedited, edited], 0..rows, memory)?)?);
    let mut tokens: Vec<(usize, Drawn)> = order.into_iter().zip(found).collect();
    tokens.sort_unstable_by_key(|(place, _)| *place);
    Ok(tokens.into_iter().map(|(_, token)| token).collect())
}

/// Begins to draw a token of each row of logits, none of which is edited or of a given token. What is drawn lies in words on the
/// device, those of the first row at row `first` of `rows`; the memory keeps all of them.
pub(in super::super) fn begin_tokens(
    logits: &Tensor,
    draws: &[(usize, DeviceDraw)],
    (first, rows): (usize, usize),
    memory: &mut DrawMemory,
    landings: &mut Vec<Landing>,
) -> Result<Coming<u32>> {
    let (_, count, _) = sums_of(logits)?;
    let is_given = |draw: &DeviceDraw| matches!(draw.pick, DevicePick::Given(_));
    if draws.len() != count || first + count > rows {
        candle_core::bail!("{} draws from {count} rows, from row {first} of {rows} on", draws.len());
    }
    if let Some((_, draw)) = draws.iter().find(|(_, draw)| is_given(draw) || !draw.edits.is_empty()) {
        candle_core::bail!("{draw:?} amid draws that nobody waits for");
    }
    let all: Vec<&(usize, DeviceDraw)> = draws.iter().collect();
    let (words, told) = Told::new(&all, 0, count)?;
    let results = launch_draws(logits, (&words, &told), [count, 0], first..rows, memory)?;
    Coming::begin(&results, landings)
}

/// What was drawn, of its words.
pub(in super::super) fn drawn_of(words: &[u32]) -> Vec<Drawn> {
    let (results, _) = words.as_chunks::<DRAWN_WORDS>();
    results.iter().map(of_words).collect()
}

/// The ids of tokens that were drawn last, on the device, by their rows.
pub(in super::super) fn drawn_ids(rows: &[usize], memory: &DrawMemory, device: &Device) -> Result<Tensor> {
    let words =
        memory.drawn.memory().filter(|memory| rows.iter().all(|row| (row + 1) * DRAWN_WORDS <= memory.elem_count()));
    let Some(words) = words else { candle_core::bail!("tokens that were not drawn") };
    // The first word of each is the id.
    words.index_select(&host::picked(rows.iter().map(|row| row * DRAWN_WORDS), device)?, 0)
}

/// Draws from rows of which the first ones are not edited. What is drawn is written from row `places.start` on to memory with room
/// for all rows before `places.end`.
fn launch_draws(
    logits: &Tensor,
    (words, told): (&[u32], &impl Fn(u64) -> Told),
    [unedited, edited]: [usize; 2],
    places: Range<usize>,
    DrawMemory { allocations, told: memory, sums, drawn, edited: edited_rows, .. }: &mut DrawMemory,
) -> Result<Tensor> {
    let ((at, _, width), rows) = (sums_of(logits)?, unedited + edited);
    let kind = |dtype| TensorKind { device: logits.device(), dtype, allocations };
    let told = told(address(&memory.write(kind(DType::U32), words, (1, words.len()))?)?);
    let blocks = width.div_ceil(SKIM_BLOCK);
    let at_once = edited.min(MOST_EDITED);
    let [all_sums, edited_sums] = [told.kinds * rows * blocks, at_once * blocks];
    let all_maxima = (rows + at_once) * blocks;
    // Maxima have half as many bits.
    let partial = sums.room(kind(DType::F64), all_sums + edited_sums + all_maxima.div_ceil(2))?;
    let (sums, maxima) = (address(&partial)?, address(&partial.narrow(0, all_sums + edited_sums, 1)?)?);
    let results = drawn.room(kind(DType::U32), places.end * DRAWN_WORDS)?;
    let results = results.narrow(0, places.start * DRAWN_WORDS, rows * DRAWN_WORDS)?;
    let wanted = RowSums { numbers: told.numbers, bits: told.bits, maxima, sums, rows, kinds: told.kinds };
    // SAFETY: `Told` took numbers of rows that there are, and has bits of each kind for each of them. There is room for a maximum of
    // each block of each row, and for sums of each kind.
    unsafe { sum_rows(logits, wanted)? };
    let group = Group { at, width, blocks, maxima, sums, told, drawn: address(&results)? };
    let from = Source {
        rows: at,
        numbers: told.numbers,
        maxima,
        sums: sums + ((told.kinds - 1) * rows * blocks * WIDE) as u64,
    };
    // SAFETY: the rows are drawn from as they are, and their sums are made.
    unsafe { group.draw(logits, 0, unedited, from)? };
    if edited > 0 {
        let rows_of = edited_rows.reshape(kind(DType::F32), MOST_EDITED, width)?;
        let maxima = maxima + (rows * blocks * NARROW) as u64;
        let place = Edited { rows: rows_of, maxima, sums: sums + (all_sums * WIDE) as u64 };
        // SAFETY: there are as many edits and factors as rows that are edited, and room for the rows and sums of so many at once.
        unsafe { group.draw_edited(logits, &place, unedited, edited)? };
    }
    Ok(results)
}

/// Draws from some of the rows, by addresses.
struct Group {
    at: u64,
    width: usize,
    blocks: usize,
    maxima: u64,
    sums: u64,
    told: Told,
    drawn: u64,
}

impl Group {
    /// Where the number of a row is, by the place of its draw.
    fn number(&self, place: usize) -> u64 {
        self.told.numbers + (place * NARROW) as u64
    }

    /// Where the factor of the weights is that a draw takes a share of.
    fn draw_bits(&self, place: usize) -> u64 {
        self.told.draw_bits + (place * WIDE) as u64
    }

    /// Draws `count` tokens from rows that are edited at `place`, from the draw with this number on.
    ///
    /// # Safety
    /// As for [`draw`](Self::draw); the draws have edits, and there is room for as many rows as are edited at once, and for their sums.
    unsafe fn draw_edited(&self, logits: &Tensor, place: &Edited<'_>, first: usize, count: usize) -> Result<()> {
        for begin in (0..count).step_by(MOST_EDITED) {
            let (end, row) = (count.min(begin + MOST_EDITED), first + begin);
            // SAFETY: as the caller says.
            let from =
                unsafe { place.make(logits, self.told.edits, begin..end, (self.number(row), self.draw_bits(row)))? };
            // SAFETY: as above. The rows that are edited next are written to the same place when these have been drawn from.
            unsafe { self.draw(logits, row, end - begin, from)? };
        }
        Ok(())
    }

    /// Draws `count` tokens, from the draw with this number on.
    ///
    /// # Safety
    /// The addresses are of as many numbers as rows of logits, and of draws; `from` has rows for these.
    unsafe fn draw(&self, logits: &Tensor, first: usize, count: usize, from: Source) -> Result<()> {
        let Self { at, width, blocks, maxima, sums, told, drawn } = self;
        let [narrow, wide] = [NARROW, WIDE].map(|bytes| (first * bytes) as u64);
        let addresses = [
            *at,
            self.number(first),
            maxima + narrow * *blocks as u64,
            sums + wide * *blocks as u64,
            from.rows,
            from.numbers,
            from.maxima,
            from.sums,
            self.draw_bits(first),
            told.uniforms + wide,
            told.ways + narrow,
            told.given + narrow,
            drawn + narrow * DRAWN_WORDS as u64,
        ];
        let mut arguments: Vec<Argument> = addresses.map(Argument::Address).into();
        for count in [width, blocks] {
            arguments.push(Argument::count(*count)?);
        }
        let launch = Launch { file: &SUMMARY, kernel: "draw_tokens", rows: count, parts: 1, threads: THREADS };
        // SAFETY: as the caller says; ids that are given are less than `width`.
        unsafe { launch.run(device(logits)?, &arguments) }
    }
}

fn of_words(&[id, logit, max, at_least, low, high]: &[u32; DRAWN_WORDS]) -> Drawn {
    let total = f64::from_bits(u64::from(high) << 32 | u64::from(low));
    Drawn { id, logit: f32::from_bits(logit), max: f32::from_bits(max), at_least, total }
}
