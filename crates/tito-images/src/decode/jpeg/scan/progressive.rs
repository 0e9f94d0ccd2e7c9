//! A scan of a progressive file, into the coefficients of its components.

use super::{
    super::{
        bits::Bits,
        blocks::{self, Band},
        broken,
        frame::Frame,
    },
    parts::Part,
};
use crate::error::ImageError;

/// Reads the scan. Returns the bits behind it.
pub(super) fn read<'a>(
    bits: Bits<'a>,
    parts: Vec<Part<'_>>,
    band: Band,
    frame: &mut Frame,
    restart_interval: usize,
) -> Result<Bits<'a>, ImageError> {
    let before = vec![0; parts.len()];
    let mut scan = Scan { bits, parts, before, band, skipped: 0 };
    scan.read(frame, restart_interval)?;
    Ok(scan.bits)
}

struct Scan<'a, 'b> {
    bits: Bits<'b>,
    parts: Vec<Part<'a>>,
    /// For each part, the first coefficient of the block before.
    before: Vec<i32>,
    band: Band,
    /// Blocks that follow without new coefficients.
    skipped: u32,
}

impl Scan<'_, '_> {
    fn read(&mut self, frame: &mut Frame, restart_interval: usize) -> Result<(), ImageError> {
        let alone = self.parts.len() == 1;
        let (columns, rows) = match &self.parts[..] {
            [part] => frame.components[part.component].blocks(),
            _ => frame.mcus,
        };
        for mcu in 0..columns * rows {
            if restart_interval > 0 && mcu > 0 && mcu.is_multiple_of(restart_interval) {
                self.restart(mcu / restart_interval)?;
            }
            let (column, row) = (mcu % columns, mcu / columns);
            for index in 0..self.parts.len() {
                let component = self.parts[index].component;
                let (across, down) = if alone { (1, 1) } else { frame.components[component].sampling };
                for (y, x) in (0..down).flat_map(|y| (0..across).map(move |x| (y, x))) {
                    let block = frame.components[component].block(column * across + x, row * down + y);
                    self.read_block(index, block)?;
                }
            }
        }
        Ok(())
    }

    fn restart(&mut self, count: usize) -> Result<(), ImageError> {
        self.bits.restart(count)?;
        self.skipped = 0;
        self.before.fill(0);
        Ok(())
    }

    fn read_block(&mut self, index: usize, block: &mut [i16; 64]) -> Result<(), ImageError> {
        let Self { bits, parts, before, band, skipped } = self;
        let Part { dc, ac, .. } = &parts[index];
        if band.refines() {
            return match (band.has_dc(), &ac) {
                (true, _) => blocks::refine_dc(bits, *band, block),
                (false, Some(ac)) => blocks::refine_ac(bits, ac, *band, skipped, block),
                _ => Err(broken("a Huffman table is missing")),
            };
        }
        if let Some(dc) = dc.filter(|_| band.has_dc()) {
            block[0] = blocks::dc(bits, dc, *band, &mut before[index])?;
        }
        match ac {
            Some(ac) if band.has_ac() => blocks::ac(bits, ac, *band, skipped, block),
            _ => Ok(()),
        }
    }
}
