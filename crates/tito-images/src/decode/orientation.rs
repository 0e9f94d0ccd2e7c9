//! How a camera was held: the tag of EXIF data, or of XMP data where EXIF has none, as Pillow's `getexif` finds it.

use super::{
    Raster,
    exif::{self, Pillow, Tag},
};
use crate::{decoded::DecodedImage, error::ImageError};

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
    /// A TIFF directory, with or without `Exif\0\0` before it, as Pillow keeps it.
    pub(super) exif: Option<Vec<u8>>,
    /// A text in XML.
    pub(super) xmp: Option<Vec<u8>>,
}

impl Metadata {
    /// As EXIF says, or XMP if EXIF has no such tag, in a file of this kind. Data that make no sense say nothing: vLLM leaves
    /// such an image as it is.
    ///
    /// # Errors
    ///
    /// If versions of Pillow do not agree on it.
    pub(super) fn orientation(&self, kind: &'static str) -> Result<Orientation, ImageError> {
        let [orientation, older] = [Pillow::Thirteen, Pillow::Twelve].map(|pillow| self.orientation_in(pillow));
        if orientation != older {
            return Err(ImageError::unsupported(
                kind,
                "versions of Pillow turn it in different ways, for its EXIF data",
            ));
        }
        Ok(orientation)
    }

    fn orientation_in(&self, pillow: Pillow) -> Orientation {
        let exif = self.exif.as_deref().map_or(Tag::Missing, |exif| exif::orientation(exif, pillow));
        Orientation::of_number(match exif {
            Tag::Unreadable => None,
            Tag::Number(number) => Some(number),
            Tag::Missing => self.xmp.as_deref().and_then(of_xmp),
        })
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

    fn exif(kind: u8, values: &[u8]) -> Vec<u8> {
        let entry = |&value| [0x12, 1, kind, 0, 1, 0, 0, 0, value, 0, 0, 0];
        let entries = values.iter().flat_map(entry).collect::<Vec<_>>();
        let head = b"Exif\0\0II*\0\x08\0\0\0";
        [&head[..], &[u8::try_from(values.len()).unwrap(), 0], &entries].concat()
    }

    #[test]
    fn xmp_counts_where_exif_has_no_such_tag() {
        let xmp = Some(b"<x tiff:Orientation=\"8\"/>".to_vec());
        let of = |exif: Vec<u8>| Metadata { exif: Some(exif), xmp: xmp.clone() }.orientation("PNG").unwrap();
        assert_eq!(of(exif(3, &[6])), Orientation::TurnedRight);
        assert_eq!(of(exif(3, &[9])), Orientation::AsIs);
        // A text, which is no number but is there; a type that is not known; data that cannot be read.
        assert_eq!(of(exif(2, &[6])), Orientation::AsIs);
        assert_eq!(of(exif(77, &[6])), Orientation::TurnedLeft);
        assert_eq!(of(b"JJ*\0".to_vec()), Orientation::AsIs);
        assert_eq!(of(Vec::new()), Orientation::TurnedLeft);
    }

    #[test]
    fn what_versions_of_pillow_do_not_agree_on_is_refused() {
        let metadata = Metadata { exif: Some(exif(3, &[6, 3])), xmp: None };
        let words = "PNG file not supported: versions of Pillow turn it in different ways, for its EXIF data";
        assert_eq!(metadata.orientation("PNG").unwrap_err().to_string(), words);
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
