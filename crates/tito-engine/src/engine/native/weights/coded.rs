//! Rows of small numbers, each of which is multiplied with the scale of its group: what quantised checkpoints hold, as long
//! as nobody widens it.

use std::ops::Range;

use half::bf16;

use super::{
    WeightsError,
    small_floats::{E2M1, E4M3},
};

/// A type of small numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// Eight bits, see [`E4M3`]. Scales are any numbers of f32.
    E4m3,
    /// Four bits, see [`E2M1`]. Scales are powers of two that bf16 holds.
    E2m1,
}

impl Code {
    /// The number that a code stands for; of four bits, they are the lower ones.
    pub(crate) fn number(self, code: u8) -> f32 {
        match self {
            Self::E4m3 => E4M3[usize::from(code)],
            Self::E2m1 => E2M1[usize::from(code & 0xf)],
        }
    }
}

/// Some rows as they were read.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    /// One for each number, row by row.
    pub(crate) codes: Vec<u8>,
    /// One for each group of each row.
    pub(crate) scales: Vec<f32>,
}

/// Rows of codes. A number is that of its code times the scale of its group, in f32.
pub(crate) trait CodedRows: Sync {
    /// The type of the codes.
    fn code(&self) -> Code;

    /// How many rows there are.
    fn rows(&self) -> usize;

    /// Numbers of a row.
    fn columns(&self) -> usize;

    /// How many numbers of a row share a scale; the last group of a row may be smaller. Not 0.
    fn group(&self) -> usize;

    /// Whether a number is that product rounded to bf16, whatever it is computed with.
    fn is_rounded(&self) -> bool;

    /// Reads some rows.
    fn read(&self, rows: Range<usize>) -> Result<Codes, WeightsError>;
}

/// Appends the numbers of some rows to `out`.
pub(crate) fn widen(coded: &dyn CodedRows, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
    let (columns, group, code) = (coded.columns(), coded.group(), coded.code());
    out.try_reserve(rows.len().saturating_mul(columns)).map_err(|_| WeightsError::NoRoom)?;
    let Codes { codes, scales } = coded.read(rows)?;
    let of_rows = codes.chunks_exact(columns.max(1)).zip(scales.chunks_exact(columns.div_ceil(group).max(1)));
    let groups = of_rows.flat_map(|(codes, scales)| codes.chunks(group).zip(scales));
    for (codes, scale) in groups {
        let numbers = codes.iter().map(|byte| code.number(*byte) * scale);
        if coded.is_rounded() {
            out.extend(numbers.map(|number| bf16::from_f32(number).to_f32()));
        } else {
            out.extend(numbers);
        }
    }
    Ok(())
}
