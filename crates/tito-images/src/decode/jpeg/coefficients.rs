//! All coefficients of a block but the first, as baseline files code them. Most codes are looked up together with the number
//! that follows.

#![expect(clippy::cast_possible_truncation, reason = "numbers of at most 15 bits")]
#![expect(clippy::inline_always, reason = "only what is inlined uses the wider instructions")]

use super::{
    bits::{Bits, signed},
    broken,
    header::ZIGZAG,
    huffman::{Huffman, SHORT},
};
use crate::error::ImageError;

/// What the next bits begin with, for each value of `SHORT` bits.
pub(super) struct Coefficients<'a> {
    table: &'a Huffman,
    steps: Vec<Step>,
}

/// A code and the number after it.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Zero if it is not known, or if there is none.
    number: i16,
    /// How many coefficients are passed over; all for the end of a block.
    zeros: u8,
    /// Bits of code and number, and from `SIZE` on those of the number alone, unless that is known. Zero if the code is longer
    /// than `SHORT` bits.
    bits: u16,
}

/// A block has so many, and `ZIGZAG` a place for each.
const COUNT: usize = 64;
const SIZE: u32 = 8;

impl Step {
    fn new(code: u8, symbol: u8, number: Option<i16>) -> Self {
        let (zeros, size) = (symbol >> 4, symbol & 15);
        if size == 0 {
            // 16 zeros, or the end. Baseline files have no runs of ends; libjpeg takes each such symbol for the end of one.
            let zeros = if zeros == 15 { zeros } else { COUNT as u8 };
            return Self { number: 0, zeros, bits: code.into() };
        }
        let unknown = if number.is_some() { 0 } else { size };
        Self { number: number.unwrap_or(0), zeros, bits: u16::from(code + size) | u16::from(unknown) << SIZE }
    }

    /// What these bits begin with; `code` and `symbol` are those of the table.
    fn of(bits: u32, (code, symbol): (u8, u8)) -> Self {
        if code == 0 {
            return Self { number: 0, zeros: 0, bits: 0 };
        }
        let size = u32::from(symbol & 15);
        let rest = SHORT.checked_sub(u32::from(code) + size);
        let number = rest.map(|rest| signed(bits >> rest & ((1 << size) - 1), size) as i16);
        Self::new(code, symbol, number)
    }
}

impl<'a> Coefficients<'a> {
    pub(super) fn new(table: &'a Huffman) -> Self {
        let steps = (0..1 << SHORT).map(|bits| Step::of(bits, table.short(bits))).collect();
        Self { table, steps }
    }

    /// Reads those of a block, which has had none. Returns the place of the last one that is there, in the file's order.
    #[inline(always)]
    pub(super) fn read(&self, bits: &mut Bits<'_>, block: &mut [i16; COUNT]) -> Result<usize, ImageError> {
        let steps: &[Step; 1 << SHORT] = self.steps.as_slice().try_into().expect("a step for each");
        let mut here = *bits;
        let (mut place, mut last) = (1, 0);
        while place < COUNT {
            here = here.with_a_symbol();
            let step = steps[(here.buffer() >> (u64::BITS - SHORT)) as usize];
            let (length, size) = (u32::from(step.bits) & 31, u32::from(step.bits) >> SIZE);
            let (number, zeros);
            if length.wrapping_sub(1) < here.held() {
                number = if size == 0 { step.number } else { here.number(length, size) as i16 };
                zeros = step.zeros;
                here = here.behind(length);
            } else {
                // The code is long, or the scan ends.
                *bits = here;
                (number, zeros) = self.one_by_one(bits)?;
                here = *bits;
            }
            place += usize::from(zeros);
            if place >= COUNT {
                if number != 0 {
                    return Err(broken("a block has more than 64 coefficients"));
                }
                break;
            }
            block[usize::from(ZIGZAG[place])] = number;
            last = place;
            place += 1;
        }
        *bits = here;
        Ok(last)
    }

    /// The next code, and then the number that follows it. Returns that and the zeros before it.
    #[cold]
    fn one_by_one(&self, bits: &mut Bits<'_>) -> Result<(i16, u8), ImageError> {
        let symbol = self.table.next(bits)?;
        let number = bits.take_signed(u32::from(symbol & 15))? as i16;
        Ok((number, Step::new(0, symbol, Some(number)).zeros))
    }
}
