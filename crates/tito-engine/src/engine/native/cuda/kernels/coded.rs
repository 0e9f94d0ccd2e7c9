//! Widening of codes, in `rows.cu`.

use candle_core::{DType, Result, Tensor, bail};

use super::{
    device,
    launch::{Argument, Launch},
    rows::{ROWS, THREADS, for_type},
    rows_of,
};
use crate::engine::native::{cuda::packing::Packing, weights::Code};

/// How many numbers of a row one block computes.
const NUMBERS: usize = 1024;
/// The shift that stands for a division.
const DIVIDED: u32 = 32;

/// By how much the number of a column is shifted for that of its group. Dividing is slow, and most groups are powers of
/// two or whole rows.
fn shift(group: usize, columns: usize) -> u32 {
    match group {
        group if group >= columns => DIVIDED - 1,
        group if group.is_power_of_two() => group.trailing_zeros(),
        _ => DIVIDED,
    }
}

/// Writes the numbers that codes and scales stand for, row by row.
pub(in super::super) fn widen(codes: &Tensor, scales: &Tensor, packing: Packing, out: &Tensor) -> Result<()> {
    let (bytes, rows, row_bytes) = rows_of(codes)?;
    let (factors, scale_rows, groups) = rows_of(scales)?;
    let (to, out_rows, columns) = rows_of(out)?;
    let Packing { code, group, is_rounded, .. } = packing;
    let (name, of_scales) = match code {
        Code::E4m3 => ("widen_e4m3", DType::F32),
        Code::E2m1 => ("widen_e2m1", DType::BF16),
    };
    let is_typed = codes.dtype() == DType::U8 && scales.dtype() == of_scales;
    if !is_typed || (columns, row_bytes, groups) != (packing.columns, packing.row_bytes(), packing.groups()) {
        bail!("{row_bytes} bytes and {groups} scales for {columns} numbers in {code:?} in groups of {group}");
    }
    if (rows, scale_rows) != (out_rows, out_rows) || columns > 1 << (DIVIDED - 1) {
        bail!("{rows} rows of codes and {scale_rows} of scales for {out_rows} of {columns}");
    }
    let arguments = [
        Argument::Address(bytes),
        Argument::Address(factors),
        Argument::Address(to),
        Argument::count(columns)?,
        Argument::count(row_bytes)?,
        Argument::count(groups)?,
        Argument::count(group.min(columns))?,
        Argument::Count(shift(group, columns)),
        Argument::Count(u32::from(is_rounded)),
    ];
    let kernel = for_type(name, out.dtype())?;
    let parts = columns.div_ceil(NUMBERS);
    let launch = Launch { file: &ROWS, kernel: &kernel, rows, parts, threads: THREADS };
    // SAFETY: each row has a code for each of its columns and a scale for each of its groups, which were just counted, and
    // room for as many numbers in the type of `out`.
    unsafe { launch.run(device(codes)?, &arguments) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_divides_by_the_group() {
        for (group, columns) in [(32, 2880), (128, 4096), (4096, 4096), (5000, 4096), (1, 7), (7, 7)] {
            let shift = shift(group, columns);
            for column in [0, 1, group - 1, group, columns - 1] {
                let column = column.min(columns - 1);
                assert_eq!(column >> shift, column / group, "{column} of {columns} in groups of {group}");
            }
        }
        assert_eq!(shift(48, 96), DIVIDED);
    }
}
