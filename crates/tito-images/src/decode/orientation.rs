//! How a camera was held: the tag of EXIF data, or of XMP data where EXIF has none, as Pillow's `getexif` finds it.

use super::Raster;
use crate::decoded::DecodedImage;

/// What makes an image upright.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Orientation {
    AsIs,
    MirroredAcross,
    UpsideDown,
    MirroredDown,
    Transposed,
    TurnedRight,
    Transversed,
    TurnedLeft,
}

/// What a file says of itself beside its pixels.
#[derive(Debug, Default, Clone)]
pub(super) struct Metadata {
    /// A TIFF directory, with or without `Exif\0\0` before it.
    pub(super) exif: Option<Vec<u8>>,
    /// A text in XML.
    pub(super) xmp: Option<Vec<u8>>,
}

const TAG: u16 = 0x0112;

impl Metadata {
    /// As EXIF says, or else XMP. Data that make no sense say nothing: vLLM leaves such an image as it is.
    pub(super) fn orientation(&self) -> Orientation {
        let exif = match self.exif.as_deref().filter(|exif| !without_prefix(exif).is_empty()).map(of_exif) {
            Some(Err(NotReadable)) => return Orientation::AsIs,
            Some(Ok(number)) => number,
            None => None,
        };
        Orientation::of_number(exif.or_else(|| self.xmp.as_deref().and_then(of_xmp)))
    }
}

impl Orientation {
    fn of_number(number: Option<u32>) -> Self {
        match number {
            Some(2) => Self::MirroredAcross,
            Some(3) => Self::UpsideDown,
            Some(4) => Self::MirroredDown,
            Some(5) => Self::Transposed,
            Some(6) => Self::TurnedRight,
            Some(7) => Self::Transversed,
            Some(8) => Self::TurnedLeft,
            _ => Self::AsIs,
        }
    }

    /// The image upright.
    pub(super) fn turn(self, raster: Raster) -> DecodedImage {
        let Raster { width, height, rgb } = raster;
        if self == Self::AsIs {
            return DecodedImage::new(width, height, rgb);
        }
        let (wide, high) = (width as usize, height as usize);
        let lies = matches!(self, Self::Transposed | Self::TurnedRight | Self::Transversed | Self::TurnedLeft);
        let (new_width, new_height) = if lies { (height, width) } else { (width, height) };
        let mut turned = Vec::with_capacity(rgb.len());
        for y in 0..new_height as usize {
            for x in 0..new_width as usize {
                let (from_x, from_y) = match self {
                    Self::AsIs => (x, y),
                    Self::MirroredAcross => (wide - 1 - x, y),
                    Self::UpsideDown => (wide - 1 - x, high - 1 - y),
                    Self::MirroredDown => (x, high - 1 - y),
                    Self::Transposed => (y, x),
                    Self::TurnedRight => (y, high - 1 - x),
                    Self::Transversed => (wide - 1 - y, high - 1 - x),
                    Self::TurnedLeft => (wide - 1 - y, x),
                };
                turned.extend_from_slice(&rgb[3 * (from_y * wide + from_x)..][..3]);
            }
        }
        DecodedImage::new(new_width, new_height, turned)
    }
}

/// What Pillow raises an error for, which vLLM passes over.
struct NotReadable;

/// Pillow drops up to two of these.
fn without_prefix(exif: &[u8]) -> &[u8] {
    let once = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    if once.len() < exif.len() { once.strip_prefix(b"Exif\0\0").unwrap_or(once) } else { once }
}

/// The tag in the first directory. None if the directory lacks it, or ends before it.
fn of_exif(exif: &[u8]) -> Result<Option<u32>, NotReadable> {
    let tiff = without_prefix(exif);
    let little = match tiff.get(..4) {
        Some(b"II*\0") => true,
        Some(b"MM\0*") => false,
        _ => return Err(NotReadable),
    };
    let u16_at = |offset: usize| {
        let bytes = tiff.get(offset..)?.first_chunk::<2>()?;
        Some(if little { u16::from_le_bytes(*bytes) } else { u16::from_be_bytes(*bytes) })
    };
    let u32_at = |offset: usize| {
        let bytes = tiff.get(offset..)?.first_chunk::<4>()?;
        Some(if little { u32::from_le_bytes(*bytes) } else { u32::from_be_bytes(*bytes) })
    };
    let Some(directory) = u32_at(4) else { return Err(NotReadable) };
    let directory = directory as usize;
    let Some(entries) = u16_at(directory) else { return Ok(None) };
    let mut found = None;
    for entry in (0..usize::from(entries)).map(|index| directory + 2 + 12 * index) {
        // The last of several entries counts; an entry that is cut off ends the directory.
        let (Some(tag), Some(kind), Some(count), Some(_)) =
            (u16_at(entry), u16_at(entry + 2), u32_at(entry + 4), u32_at(entry + 8))
        else {
            break;
        };
        if tag == TAG && count == 1 {
            found = match kind {
                SHORT | SIGNED_SHORT => u16_at(entry + 8).map(u32::from),
                LONG | SIGNED_LONG | DIRECTORY => u32_at(entry + 8),
                _ => found,
            };
        }
    }
    Ok(found)
}

/// Types of TIFF entries that are whole numbers of more than a byte.
const SHORT: u16 = 3;
const LONG: u16 = 4;
const SIGNED_SHORT: u16 = 8;
const SIGNED_LONG: u16 = 9;
const DIRECTORY: u16 = 13;

/// The first digit after `tiff:Orientation="` or `tiff:Orientation>`.
fn of_xmp(xmp: &[u8]) -> Option<u32> {
    const NAME: &[u8] = b"tiff:Orientation";
    let mut places = xmp.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME);
    places.find_map(|(place, _)| {
        let after = &xmp[place + NAME.len()..];
        let digit = after.strip_prefix(b"=\"").or_else(|| after.strip_prefix(b">"))?.first()?;
        digit.is_ascii_digit().then(|| u32::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::{Metadata, Orientation, Raster};

    fn exif(kind: u16, value: u32) -> Vec<u8> {
        let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01".to_vec();
        exif.extend(kind.to_le_bytes());
        exif.extend(1_u32.to_le_bytes());
        exif.extend(value.to_le_bytes());
        exif
    }

    #[test]
    fn exif_counts_before_xmp() {
        let xmp = Some(b"<x tiff:Orientation=\"8\"/>".to_vec());
        let both = Metadata { exif: Some(exif(3, 6)), xmp: xmp.clone() };
        assert_eq!(both.orientation(), Orientation::TurnedRight);
        let without = Metadata { exif: Some(exif(2, 6)), xmp };
        assert_eq!(without.orientation(), Orientation::TurnedLeft);
    }

    #[test]
    fn data_that_end_too_early_say_nothing() {
        let whole = exif(3, 6);
        for length in 0..whole.len() {
            let cut = Metadata { exif: Some(whole[..length].to_vec()), xmp: None };
            assert_eq!(cut.orientation(), Orientation::AsIs, "{length}");
        }
        let far = Metadata { exif: Some(b"MM\0*\xff\xff\xff\xff".to_vec()), xmp: None };
        assert_eq!(far.orientation(), Orientation::AsIs);
    }

    /// Two rows, `012` and `345`.
    #[test]
    fn each_orientation_moves_each_pixel() {
        let pixels = |order: &str| order.bytes().flat_map(|digit| [digit; 3]).collect::<Vec<_>>();
        let turned = [
            (1, "012345", (3, 2)),
            (2, "210543", (3, 2)),
            (3, "543210", (3, 2)),
            (4, "345012", (3, 2)),
            (5, "031425", (2, 3)),
            (6, "304152", (2, 3)),
            (7, "524130", (2, 3)),
            (8, "251403", (2, 3)),
        ];
        for (number, order, size) in turned {
            let raster = Raster { width: 3, height: 2, rgb: pixels("012345") };
            let image = Orientation::of_number(Some(number)).turn(raster);
            assert_eq!((image.width(), image.height()), size, "{number}");
            assert_eq!(image.pixels(), pixels(order), "{number}");
        }
    }
}
