//! What a scan holds, and the tables that it is coded with.

use super::super::{
    KIND,
    blocks::Band,
    broken,
    frame::{Frame, MOST_BLOCKS},
    header::Tables,
    huffman::Huffman,
};
use crate::error::ImageError;

/// A component in a scan.
pub(super) struct Part<'a> {
    /// Which of the frame's.
    pub(super) component: usize,
    pub(super) dc: Option<&'a Huffman>,
    pub(super) ac: Option<&'a Huffman>,
}

/// The parts of the scan that `header` describes, and what it has of their coefficients.
pub(super) fn read<'a>(header: &[u8], frame: &Frame, tables: &'a Tables) -> Result<(Vec<Part<'a>>, Band), ImageError> {
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
        let has_all_ones = |table: Option<&Huffman>| table.is_some_and(Huffman::has_all_ones);
        if band.needs_dc_table() && has_all_ones(dc) || band.needs_ac_table() && has_all_ones(ac) {
            return Err(broken("a Huffman code is all ones"));
        }
        parts.push(Part { component, dc, ac });
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
