//! A scan: some digits of some coefficients of some components.

mod baseline;
mod parts;
mod progressive;

use super::{bits::Bits, frame::Frame, header::Tables};
use crate::error::ImageError;

/// Reads the scan that `header` describes into `frame`. Returns what follows it in `rest`.
pub(super) fn decode<'a>(
    header: &[u8],
    rest: &'a [u8],
    frame: &mut Frame,
    tables: &Tables,
) -> Result<&'a [u8], ImageError> {
    let (parts, band) = parts::read(header, frame, tables)?;
    for part in &parts {
        let component = &mut frame.components[part.component];
        component.quantise(&tables.quantisation)?;
        band.note(&mut component.missing)?;
    }
    let bits = Bits::new(rest);
    let bits = if frame.progressive {
        progressive::read(bits, parts, band, frame, tables.restart_interval)?
    } else {
        baseline::read(bits, &parts, frame, tables.restart_interval)?
    };
    Ok(bits.rest())
}
