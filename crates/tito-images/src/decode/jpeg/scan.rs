//! A scan: some digits of some coefficients of some components.

use super::{
    KIND,
    bits::Bits,
    blocks::{self, Band},
    broken,
    frame::{Frame, MOST_BLOCKS},
    header::Tables,
    huffman::Huffman,
};
use crate::error::ImageError;

/// A component in a scan.
struct Part<'a> {
    /// Which of the frame's.
    component: usize,
    dc: Option<&'a Huffman>,
    ac: Option<&'a Huffman>,
    /// The first coefficient of the block before.
    before: i32,
}

/// Reads the scan that `header` describes into the coefficients of `frame`. Returns what follows it in `rest`.
pub(super) fn decode<'a>(
    header: &[u8],
    rest: &'a [u8],
    frame: &mut Frame,
    tables: &Tables,
) -> Result<&'a [u8], ImageError> {
    let (parts, band) = read_header(header, frame, tables)?;
    for part in &parts {
        let component = &mut frame.components[part.component];
        component.quantise(&tables.quantisation)?;
        band.note(&mut component.missing)?;
    }
    let mut scan = Scan { bits: Bits::new(rest), parts, band, skipped: 0 };
    scan.read(frame, tables.restart_interval)?;
    Ok(scan.bits.rest())
}

fn read_header<'a>(header: &[u8], frame: &Frame, tables: &'a Tables) -> Result<(Vec<Part<'a>>, Band), ImageError> {
    let wrong = || broken("a scan is described wrongly");
    let (&count, header) = header.split_first().ok_or_else(wrong)?;
    let (described, band) = header.split_at_checked(2 * usize::from(count)).ok_or_else(wrong)?;
    let &[first, last, digits] = band else { return Err(wrong()) };
    let band =
        if frame.progressive { Band::progressive(first, last, digits).ok_or_else(wrong)? } else { Band::BASELINE };
    let mut parts = Vec::<Part<'_>>::new();
    for &[id, table] in described.as_chunks().0 {
        let component = frame.components.iter().position(|component| component.id == id).ok_or_else(wrong)?;
        if parts.iter().any(|part| part.component == component) {
            return Err(wrong());
        }
        let dc = tables.dc.get(usize::from(table >> 4)).and_then(Option::as_ref).filter(|dc| dc.within(15));
        let ac = tables.ac.get(usize::from(table & 15)).and_then(Option::as_ref);
        if band.needs_dc_table() && dc.is_none() || band.needs_ac_table() && ac.is_none() {
            return Err(broken("a Huffman table is missing"));
        }
        parts.push(Part { component, dc, ac, before: 0 });
    }
    let blocks =
        |part: &Part<'_>| frame.components[part.component].sampling.0 * frame.components[part.component].sampling.1;
    match parts.len() {
        2..=4 if !band.has_dc() => Err(wrong()),
        2..=4 if parts.iter().map(blocks).sum::<usize>() > MOST_BLOCKS => {
            Err(ImageError::unsupported(KIND, "its components are too different in size"))
        }
        1..=4 => Ok((parts, band)),
        0 | 5.. => Err(wrong()),
    }
}

struct Scan<'a, 'b> {
    bits: Bits<'b>,
    parts: Vec<Part<'a>>,
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
        self.parts.iter_mut().for_each(|part| part.before = 0);
        Ok(())
    }

    fn read_block(&mut self, index: usize, block: &mut [i16; 64]) -> Result<(), ImageError> {
        let Self { bits, parts, band, skipped } = self;
        let Part { dc, ac, before, .. } = &mut parts[index];
        if band.refines() {
            return match (band.has_dc(), &ac) {
                (true, _) => blocks::refine_dc(bits, *band, block),
                (false, Some(ac)) => blocks::refine_ac(bits, ac, *band, skipped, block),
                _ => Err(broken("a Huffman table is missing")),
            };
        }
        if let Some(dc) = dc.filter(|_| band.has_dc()) {
            block[0] = blocks::dc(bits, dc, *band, before)?;
        }
        match ac {
            Some(ac) if band.has_ac() => blocks::ac(bits, ac, *band, skipped, block),
            _ => Ok(()),
        }
    }
}
