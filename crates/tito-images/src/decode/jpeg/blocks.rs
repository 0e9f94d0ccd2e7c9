//! The coefficients of a block, as ITU T.81 (annexes F and G) codes them in progressive files, and the first one in all files.

use super::{bits::Bits, broken, header::ZIGZAG, huffman::Huffman};
use crate::error::ImageError;

/// Which digits of which coefficients a scan has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Band {
    /// Places in the file's order.
    first: usize,
    last: usize,
    /// Digits above this one are known.
    above: u8,
    /// The lowest digit of the scan.
    lowest: u8,
}

impl Band {
    /// Everything at once.
    pub(super) const BASELINE: Self = Self { first: 0, last: 63, above: 0, lowest: 0 };

    /// As a progressive file describes it.
    pub(super) fn progressive(first: u8, last: u8, digits: u8) -> Option<Self> {
        let (above, lowest) = (digits >> 4, digits & 15);
        let dc = first == 0 && last == 0;
        let ac = first > 0 && first <= last && last <= 63;
        let one_digit = above == 0 || above == lowest + 1;
        let band = Self { first: first.into(), last: last.into(), above, lowest };
        ((dc || ac) && one_digit && lowest <= 13).then_some(band)
    }

    pub(super) fn has_dc(self) -> bool {
        self.first == 0
    }

    pub(super) fn has_ac(self) -> bool {
        self.last > 0
    }

    pub(super) fn refines(self) -> bool {
        self.above > 0
    }

    pub(super) fn needs_dc_table(self) -> bool {
        self.has_dc() && !self.refines()
    }

    pub(super) fn needs_ac_table(self) -> bool {
        self.has_ac()
    }

    /// Notes which digits are known after this scan. Digits that come twice, or before those above them, are refused.
    pub(super) fn note(self, missing: &mut [Option<u8>; 64]) -> Result<(), ImageError> {
        if !self.has_dc() && missing[0].is_none() {
            return Err(broken("scans are in the wrong order"));
        }
        for missing in &mut missing[self.first..=self.last] {
            let follows = match *missing {
                None => !self.refines(),
                Some(lowest) => self.refines() && lowest == self.above,
            };
            if !follows {
                return Err(broken("scans are in the wrong order"));
            }
            *missing = Some(self.lowest);
        }
        Ok(())
    }
}

/// The first coefficient, which is coded as the difference to the one `before`.
#[inline]
pub(super) fn dc(bits: &mut Bits<'_>, table: &Huffman, band: Band, before: &mut i32) -> Result<i16, ImageError> {
    let size = table.next(bits)?;
    *before += bits.take_signed(size.into())?;
    i16::try_from(*before << band.lowest).map_err(|_| broken("a coefficient is too large"))
}

/// One more digit of the first coefficient.
pub(super) fn refine_dc(bits: &mut Bits<'_>, band: Band, block: &mut [i16; 64]) -> Result<(), ImageError> {
    if bits.take(1)? == 1 {
        block[0] |= 1 << band.lowest;
    }
    Ok(())
}

/// The first digits of the other coefficients, unless there are none in `skipped` blocks.
pub(super) fn ac(
    bits: &mut Bits<'_>,
    table: &Huffman,
    band: Band,
    skipped: &mut u32,
    block: &mut [i16; 64],
) -> Result<(), ImageError> {
    if *skipped > 0 {
        *skipped -= 1;
        return Ok(());
    }
    let mut place = band.first;
    while place <= band.last {
        let symbol = table.next(bits)?;
        let (zeros, size) = (symbol >> 4, symbol & 15);
        if size == 0 && zeros < 15 {
            *skipped = end_of_blocks(bits, zeros)?;
            return Ok(());
        }
        place += usize::from(zeros);
        if size > 0 {
            let number = bits.take_signed(size.into())? << band.lowest;
            let number = i16::try_from(number).map_err(|_| broken("a coefficient is too large"))?;
            set(block, place, band, number)?;
        }
        place += 1;
    }
    Ok(())
}

fn set(block: &mut [i16; 64], place: usize, band: Band, number: i16) -> Result<(), ImageError> {
    if place > band.last {
        return Err(broken("a block has more than 64 coefficients"));
    }
    block[usize::from(ZIGZAG[place])] = number;
    Ok(())
}

/// In how many blocks after this one nothing new follows.
fn end_of_blocks(bits: &mut Bits<'_>, size: u8) -> Result<u32, ImageError> {
    Ok((1 << size) - 1 + bits.take(size.into())?)
}

/// One more digit of the other coefficients: of those that are known, and the first of those that were zero.
pub(super) fn refine_ac(
    bits: &mut Bits<'_>,
    table: &Huffman,
    band: Band,
    skipped: &mut u32,
    block: &mut [i16; 64],
) -> Result<(), ImageError> {
    let mut place = band.first;
    if *skipped > 0 {
        *skipped -= 1;
        refine_known(bits, band, usize::MAX, &mut place, block)?;
        return Ok(());
    }
    while place <= band.last {
        let symbol = table.next(bits)?;
        let (zeros, size) = (symbol >> 4, symbol & 15);
        let number = match size {
            0 if zeros < 15 => {
                *skipped = end_of_blocks(bits, zeros)?;
                return refine_known(bits, band, usize::MAX, &mut place, block);
            }
            0 => 0,
            1 if bits.take(1)? == 1 => 1 << band.lowest,
            1 => -1 << band.lowest,
            _ => return Err(broken("a coefficient has several first digits")),
        };
        refine_known(bits, band, zeros.into(), &mut place, block)?;
        if number != 0 {
            set(block, place, band, number)?;
        }
        place += 1;
    }
    Ok(())
}

/// Adds a digit to coefficients that are not zero, up to the place behind so many `zeros`.
fn refine_known(
    bits: &mut Bits<'_>,
    band: Band,
    mut zeros: usize,
    place: &mut usize,
    block: &mut [i16; 64],
) -> Result<(), ImageError> {
    while *place <= band.last {
        let number = &mut block[usize::from(ZIGZAG[*place])];
        if *number == 0 {
            if zeros == 0 {
                return Ok(());
            }
            zeros -= 1;
        } else if bits.take(1)? == 1 {
            let digit = 1 << band.lowest;
            *number = if *number > 0 { number.saturating_add(digit) } else { number.saturating_sub(digit) };
        }
        *place += 1;
    }
    Ok(())
}
