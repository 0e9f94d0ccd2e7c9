//! The chunks of a PNG file, for what Pillow makes of them and the decoder does not tell: it passes over chunks that are out of
//! place or doubled, where Pillow takes them. Such files are refused.

use png::{BitDepth, ColorType};

use super::KIND;
use crate::error::ImageError;

/// The keyword of EXIF data in a text.
pub(super) const PROFILE: &str = "Raw profile type exif";

/// The keyword of XMP data.
pub(super) const XMP: &str = "XML:com.adobe.xmp";

/// Keywords of texts that Pillow confuses with what it has read of other chunks.
const CONFUSED: [&[u8]; 8] =
    [b"exif", b"xmp", b"interlace", b"transparency", b"bbox", b"disposal", b"blend", b"default_image"];

/// What stood in a file so far.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "a file has any of these or not")]
pub(super) struct Chunks {
    palette: bool,
    transparency: bool,
    pixels: bool,
    exif: bool,
    /// A second frame, at which Pillow stops to read.
    second_frame: bool,
    /// Whether there are texts with EXIF and with XMP data.
    pub(super) profile: bool,
    pub(super) xmp: bool,
}

impl Chunks {
    /// Those of a file of such samples. A file that is cut off, or whose chunks are none, is left to the decoder.
    pub(super) fn read(encoded: &[u8], samples: (ColorType, BitDepth), size: (u32, u32)) -> Result<Self, ImageError> {
        let mut chunks = Self::default();
        let mut rest = encoded.get(8..).unwrap_or_default();
        while let Some((name, content, after)) = next(rest) {
            match name {
                b"IEND" => break,
                b"IDAT" => chunks.pixels = true,
                b"PLTE" => chunks.take(|chunks| &mut chunks.palette, "palettes")?,
                b"tRNS" => chunks.transparency(content, samples)?,
                b"eXIf" => chunks.metadata(|chunks| &mut chunks.exif, "EXIF data")?,
                b"fcTL" => chunks.frame(content, size)?,
                b"tEXt" | b"zTXt" | b"iTXt" => chunks.text(content, name == b"iTXt")?,
                _ => {}
            }
            rest = after;
        }
        Ok(chunks)
    }

    /// Notes what a file may have once.
    fn take(&mut self, what: impl FnOnce(&mut Self) -> &mut bool, name: &str) -> Result<(), ImageError> {
        if std::mem::replace(what(self), true) {
            return Err(refused(&format!("it has {name} more than once")));
        }
        Ok(())
    }

    fn metadata(&mut self, what: impl FnOnce(&mut Self) -> &mut bool, name: &str) -> Result<(), ImageError> {
        if self.second_frame {
            return Err(refused(&format!("it has {name} behind its first frame")));
        }
        self.take(what, name)
    }

    fn transparency(&mut self, content: &[u8], samples: (ColorType, BitDepth)) -> Result<(), ImageError> {
        let length = match samples.0 {
            ColorType::Grayscale => content.len() == 2,
            ColorType::Rgb => content.len() == 6,
            ColorType::Indexed => content.len() <= 256,
            // Neither Pillow nor the decoder looks at it.
            ColorType::GrayscaleAlpha | ColorType::Rgba => return Ok(()),
        };
        if !length {
            return Err(refused("its transparent colours have a wrong length"));
        }
        if self.pixels || samples.0 == ColorType::Indexed && !self.palette {
            return Err(refused("its transparent colours are in the wrong place"));
        }
        // Pillow takes any number but zero for white, the decoder looks at its lower half.
        if samples == (ColorType::Grayscale, BitDepth::One) && matches!(content, [1..=u8::MAX, 0]) {
            return Err(refused("its transparent colour is neither black nor white"));
        }
        if samples.0 == ColorType::Indexed && is_one_and_a_new_line(content) {
            return Err(refused("Pillow reads its transparent colours as one"));
        }
        self.take(|chunks| &mut chunks.transparency, "transparent colours")
    }

    /// Pillow believes this of the pixels, whether or not the file says that it is an animation.
    fn frame(&mut self, content: &[u8], (width, height): (u32, u32)) -> Result<(), ImageError> {
        self.second_frame |= self.pixels;
        let [_, wide, high, left, top, ..] = *content.as_chunks::<4>().0 else { return Ok(()) };
        let whole = [width, height, 0, 0].map(u32::to_be_bytes);
        if !self.pixels && [wide, high, left, top] != whole {
            return Err(refused("its first frame is smaller than the image"));
        }
        Ok(())
    }

    fn text(&mut self, content: &[u8], international: bool) -> Result<(), ImageError> {
        let keyword = content.split(|&byte| byte == 0).next().unwrap_or_default();
        if CONFUSED.contains(&keyword) {
            let name = String::from_utf8_lossy(keyword);
            return Err(refused(&format!("it has a text {name:?}, which Pillow confuses with something else")));
        }
        let is_profile = keyword == PROFILE.as_bytes();
        let is_xmp = keyword == XMP.as_bytes();
        if is_profile && international || is_xmp && !international {
            return Err(refused(&format!("it has {} in a text of another kind", String::from_utf8_lossy(keyword))));
        }
        if is_profile {
            self.metadata(|chunks| &mut chunks.profile, "EXIF data in a text")?;
        }
        if is_xmp {
            self.metadata(|chunks| &mut chunks.xmp, "XMP data")?;
        }
        Ok(())
    }
}

fn refused(what: &str) -> ImageError {
    ImageError::unsupported(KIND, what)
}

/// The name of the first chunk, what it holds, and what follows it.
fn next(bytes: &[u8]) -> Option<(&[u8; 4], &[u8], &[u8])> {
    let (length, bytes) = bytes.split_first_chunk()?;
    let (name, bytes) = bytes.split_first_chunk()?;
    let (content, after) = bytes.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    Some((name, content, after.get(4..)?))
}

/// Whether the regular expression `^\xff*\x00\xff*$`, by which Pillow knows palettes with one transparent colour, overlooks the
/// last byte, as `$` does with a new line.
fn is_one_and_a_new_line(alphas: &[u8]) -> bool {
    let Some((b'\n', before)) = alphas.split_last() else { return false };
    before.split(|&alpha| alpha == 0).count() == 2 && before.iter().all(|&alpha| alpha == 0 || alpha == u8::MAX)
}
