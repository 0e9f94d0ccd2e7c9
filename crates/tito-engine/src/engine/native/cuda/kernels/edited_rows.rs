//! Rows of logits as a sampler edits them, by `left_of_rows` and `edit_rows` in `summary.cu`.

use std::ops::Range;

use candle_core::{Result, Tensor};

use super::{
    address, device,
    launch::{Argument, Launch, narrow},
    logits::{RowSums, SUMMARY, sum_rows},
    sums_of,
};
use crate::sampling::{PenaltyFactors, RowEdits, SKIM_BLOCK};

/// So many rows are edited at once: 19 MB of a vocabulary of 152,000.
pub(super) const MOST_EDITED: usize = 32;
/// Words of 32 bits of what is edited of a row, `Edits` in `summary.cu`.
const EDITS_WORDS: usize = 6;
/// Numbers of 64 bits of how a row is penalised, `Factors` there.
const FACTORS: usize = 3;
/// `NO_MASK` there.
const NO_MASK: u32 = u32::MAX;
const THREADS: u32 = 256;

/// What tokens are drawn from, by addresses: rows, their numbers, and their sums at the temperature of the draw.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) rows: u64,
    pub(super) numbers: u64,
    pub(super) maxima: u64,
    pub(super) sums: u64,
}

/// What the device is told of edits: how far it is from the beginning of all that is told, in bytes, or the addresses.
#[derive(Clone, Copy)]
pub(super) struct ToldEdits {
    /// How rows are penalised.
    factors: u64,
    /// Numbers of rows that are edited at once: 0, 1, …
    numbers: u64,
    /// Where the edits of each row are.
    edits: u64,
    /// Masks and lists of edits.
    words: u64,
}

impl ToldEdits {
    /// Adds how rows are penalised to numbers of 64 bits, and returns where that begins.
    pub(super) fn factors<'a>(edits: impl Iterator<Item = &'a RowEdits>, wide: &mut Vec<f64>) -> usize {
        let first = wide.len();
        for edits in edits {
            let PenaltyFactors { presence, frequency, repetition } = edits.penalties.unwrap_or(PenaltyFactors::NONE);
            wide.extend([presence, frequency, repetition]);
        }
        first
    }

    /// Adds edits to what is told in words, which begins with those numbers; `factors` is where they begin.
    pub(super) fn words<'a>(
        edits: impl Iterator<Item = &'a RowEdits> + Clone,
        factors: usize,
        words: &mut Vec<u32>,
    ) -> Result<Self> {
        let numbers = words.len();
        words.extend((0..).zip(edits.clone().take(MOST_EDITED)).map(|(number, _): (u32, _)| number));
        let table = words.len();
        words.resize(table + edits.clone().count() * EDITS_WORDS, 0);
        let lists = words.len();
        for (row, edits) in edits.enumerate() {
            let own = add(edits, lists, words)?;
            words[table + row * EDITS_WORDS..][..EDITS_WORDS].copy_from_slice(&own);
        }
        let bytes = [factors * 2, numbers, table, lists].map(|place| (place * size_of::<u32>()) as u64);
        let [factors, numbers, edits, words] = bytes;
        Ok(Self { factors, numbers, edits, words })
    }

    /// The same by addresses, where what is told is at `at`.
    pub(super) fn at(self, at: u64) -> Self {
        let Self { factors, numbers, edits, words } = self;
        Self { factors: at + factors, numbers: at + numbers, edits: at + edits, words: at + words }
    }

    /// That of rows from this one on.
    fn from(self, row: usize) -> Self {
        let factors = (row * FACTORS * size_of::<f64>()) as u64;
        let edits = (row * EDITS_WORDS * size_of::<u32>()) as u64;
        Self { factors: self.factors + factors, edits: self.edits + edits, ..self }
    }
}

/// Adds lists of edits to those that begin at `lists`, and returns where they are and how long.
fn add(edits: &RowEdits, lists: usize, words: &mut Vec<u32>) -> Result<[u32; EDITS_WORDS]> {
    let RowEdits { mask, forbidden, biases, penalties: _, occurrences } = edits;
    let mask = match mask {
        None => [NO_MASK, 0],
        Some(mask) => {
            let place = narrow(words.len() - lists)?;
            words.extend(mask.words());
            [place, narrow(mask.words().len())?]
        }
    };
    let first = narrow(words.len() - lists)?;
    words.extend(forbidden);
    words.extend(biases.iter().flat_map(|(id, bias)| [*id, bias.to_bits()]));
    words.extend(occurrences.iter().flat_map(|(id, count)| [*id, *count]));
    let [forbidden, biases, occurrences] = [forbidden.len(), biases.len(), occurrences.len()].map(narrow);
    Ok([mask[0], mask[1], first, forbidden?, biases?, occurrences?])
}

/// Where rows are edited, and where their sums are written.
pub(super) struct Edited<'a> {
    pub(super) rows: &'a Tensor,
    pub(super) maxima: u64,
    pub(super) sums: u64,
}

impl Edited<'_> {
    /// Edits some rows, and sums their weights: `edited` are their places among the edits. Of the rows come the addresses of their
    /// numbers, and of the factors of the weights.
    ///
    /// # Safety
    /// There are edits, numbers of rows of `logits` and factors for each of them. There is room for the rows, and for a maximum and a
    /// sum of each of their blocks.
    pub(super) unsafe fn make(
        &self,
        logits: &Tensor,
        told: ToldEdits,
        edited: Range<usize>,
        (numbers, bits): (u64, u64),
    ) -> Result<Source> {
        let (at, _, width) = sums_of(logits)?;
        let (told, count) = (told.from(edited.start), edited.len());
        let rows = address(self.rows)?;
        let launch = |kernel, parts| Launch { file: &SUMMARY, kernel, rows: count, parts, threads: THREADS };
        let mut arguments: Vec<Argument> = [at, numbers, told.edits, told.words, rows].map(Argument::Address).into();
        arguments.push(Argument::count(width)?);
        // SAFETY: as the caller says; masks are among the words that are told.
        unsafe { launch("left_of_rows", width.div_ceil(SKIM_BLOCK)).run(device(logits)?, &arguments)? };
        let mut arguments: Vec<Argument> = [rows, told.edits, told.factors, told.words].map(Argument::Address).into();
        arguments.push(Argument::count(width)?);
        // SAFETY: as above; so are the lists of edits, and tokens without a logit are passed over.
        unsafe { launch("edit_rows", 1).run(device(logits)?, &arguments)? };
        let Self { maxima, sums, .. } = *self;
        let numbers = told.numbers;
        // SAFETY: rows that are edited are numbered from 0 on.
        unsafe { sum_rows(self.rows, RowSums { numbers, bits, maxima, sums, rows: count, kinds: 1 })? };
        Ok(Source { rows, numbers, maxima, sums })
    }
}
