//! PNG files, with Pillow's view of their samples.
//!
//! Where Pillow departs from the standard, this follows Pillow: 16-bit grey is cut at 255 and other 16-bit samples keep their
//! upper half; the transparent colour of `tRNS` is compared by the lower half of its numbers, with samples that were already
//! widened or cut to 8 bits; and a palette lacks no colour, as what it leaves out is black.

mod chunks;

use std::io::{Cursor, ErrorKind};

use png::{
    BitDepth, ColorType, DecodeOptions, Decoder, DecodingError, Info, Limits, Reader, Transformations,
    text_metadata::{ITXtChunk, ZTXtChunk},
};

use super::{
    Raster,
    exif::PREFIX,
    orientation::{Metadata, Orientation},
    rgba_on_white,
};
use crate::{decoded::ImageLimits, error::ImageError};
use chunks::{Chunks, PROFILE, XMP};

const KIND: &str = "PNG";

pub(super) fn decode(encoded: &[u8], limits: ImageLimits) -> Result<(Raster, Orientation), ImageError> {
    let mut options = DecodeOptions::default();
    // Pillow refuses these files.
    options.set_skip_ancillary_crc_failures(false);
    options.set_ignore_adler32(false);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = Decoder::new_with_options(Cursor::new(encoded), options);
    decoder.set_transformations(Transformations::IDENTITY);
    let header = decoder.read_header_info().map_err(refused)?;
    let size = (header.width, header.height);
    let pixels = limits.check(size.0, size.1)?;
    let chunks = Chunks::read(encoded, (header.color_type, header.bit_depth), size)?;
    // Two rows of an image of one row are at most 16 bytes a pixel; the rest is for what is not pixels.
    decoder.set_limits(Limits { bytes: 16 * pixels + (16 << 20) });
    let mut reader = decoder.read_info().map_err(refused)?;
    if reader.info().color_type == ColorType::Indexed && reader.info().palette.is_none() {
        return Err(ImageError::broken(KIND, "its palette is missing"));
    }
    let bytes = reader.output_buffer_size().ok_or_else(|| ImageError::broken(KIND, "its rows are too long"))?;
    let mut samples = vec![0; bytes];
    let frame = reader.next_frame(&mut samples).map_err(refused)?;
    let (width, height) = reader.info().size();
    if (frame.width, frame.height) != (width, height) {
        return Err(ImageError::unsupported(KIND, "its first frame is smaller than the image"));
    }
    let rgb = pixels_of(reader.info(), &samples, frame.line_size);
    Ok((Raster { width, height, rgb }, orientation(reader, &chunks)?))
}

fn refused(error: DecodingError) -> ImageError {
    match error {
        DecodingError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => ImageError::Truncated,
        DecodingError::LimitsExceeded => ImageError::unsupported(KIND, "what it holds beside its pixels is too long"),
        error => ImageError::broken(KIND, error.to_string()),
    }
}

/// Red, green and blue of each pixel of `samples`, whose rows are `line` bytes long.
fn pixels_of(info: &Info<'_>, samples: &[u8], line: usize) -> Vec<u8> {
    let mut rgb = Vec::with_capacity(3 * info.width as usize * info.height as usize);
    let grey = Grey::of(info);
    let palette = palette(info);
    let transparent = transparent(info);
    for row in samples.chunks_exact(line) {
        match info.color_type {
            ColorType::Grayscale => {
                let greys = unpacked(row, info).map(|sample| grey.rgb(sample));
                rgb.extend(greys.flatten());
            }
            ColorType::Indexed => rgb.extend(unpacked(row, info).flat_map(|index| palette[usize::from(index)])),
            ColorType::Rgb => {
                let colours = upper_halves(row, info);
                let seen = |&colour: &[u8; 3]| if transparent == Some(colour) { [255; 3] } else { colour };
                rgb.extend(colours.as_chunks::<3>().0.iter().flat_map(seen));
            }
            ColorType::GrayscaleAlpha => {
                let pairs = upper_halves(row, info);
                let greys = pairs.as_chunks::<2>().0.iter().map(|&[grey, alpha]| [grey, grey, grey, alpha]);
                rgb.extend(greys.flat_map(rgba_on_white));
            }
            ColorType::Rgba => {
                let colours = upper_halves(row, info);
                rgb.extend(colours.as_chunks::<4>().0.iter().flat_map(|&colour| rgba_on_white(colour)));
            }
        }
    }
    rgb
}

/// The samples of a row of grey or of indices, at most `u8::MAX` each.
fn unpacked<'a>(row: &'a [u8], info: &Info<'_>) -> impl Iterator<Item = u8> + 'a {
    let width = info.width as usize;
    let bits = info.bit_depth as usize;
    (0..width).map(move |x| match bits {
        8 => row[x],
        16 if row[2 * x] > 0 => u8::MAX,
        16 => row[2 * x + 1],
        _ => (row[x * bits / 8] >> (8 - bits - x * bits % 8)) & ((1 << bits) - 1),
    })
}

/// Samples of 8 bits.
fn upper_halves<'a>(row: &'a [u8], info: &Info<'_>) -> std::borrow::Cow<'a, [u8]> {
    match info.bit_depth {
        BitDepth::Sixteen => row.iter().copied().step_by(2).collect::<Vec<_>>().into(),
        _ => row.into(),
    }
}

/// What becomes of grey samples.
struct Grey {
    widened_by: u8,
    transparent: Option<u8>,
}

impl Grey {
    fn of(info: &Info<'_>) -> Self {
        let widened_by = match info.bit_depth {
            BitDepth::One => 255,
            BitDepth::Two => 85,
            BitDepth::Four => 17,
            BitDepth::Eight | BitDepth::Sixteen => 1,
        };
        let number = info.trns.as_deref().and_then(|number| number.last().copied());
        let black_or_white = info.bit_depth == BitDepth::One;
        let transparent = number.map(|number| if black_or_white && number > 0 { 255 } else { number });
        Self { widened_by, transparent }
    }

    fn rgb(&self, sample: u8) -> [u8; 3] {
        let grey = sample * self.widened_by;
        if self.transparent == Some(grey) { [255; 3] } else { [grey; 3] }
    }
}

/// The colours of all indices, on white.
fn palette(info: &Info<'_>) -> [[u8; 3]; 256] {
    let mut colours = [[0; 3]; 256];
    let given = info.palette.as_deref().unwrap_or_default();
    for (colour, given) in colours.iter_mut().zip(given.as_chunks::<3>().0) {
        *colour = *given;
    }
    for (colour, &alpha) in colours.iter_mut().zip(info.trns.as_deref().unwrap_or_default()) {
        *colour = rgba_on_white([colour[0], colour[1], colour[2], alpha]);
    }
    colours
}

/// The colour that is not seen, of an image without indices.
fn transparent(info: &Info<'_>) -> Option<[u8; 3]> {
    match *info.trns.as_deref()? {
        [red, green, blue] | [_, red, _, green, _, blue] => Some([red, green, blue]),
        _ => None,
    }
}

/// What the chunks before and after the pixels say.
fn orientation(mut reader: Reader<Cursor<&[u8]>>, chunks: &Chunks) -> Result<Orientation, ImageError> {
    reader.finish().map_err(refused)?;
    let info = reader.info();
    let text = profile(info)?;
    let xmp = info.utf8_text.iter().find(|text| text.keyword == XMP);
    if text.is_some() != chunks.profile || xmp.is_some() != chunks.xmp {
        return Err(ImageError::broken(KIND, "it has metadata in a text that cannot be read"));
    }
    let xmp = xmp.map(ITXtChunk::get_text).transpose().map_err(refused)?;
    let exif = match info.exif_metadata.as_deref() {
        // Pillow keeps it with this, of which it drops two.
        Some(exif) => Some([PREFIX, exif].concat()),
        // With what are no digits, Pillow's reading ends, as with other EXIF data that cannot be read.
        None => text.map(|text| from_digits(&text).unwrap_or_else(|| b"no digits".to_vec())),
    };
    Metadata { exif, xmp: xmp.map(String::into_bytes) }.orientation(KIND)
}

/// The text with the EXIF data of files that `ImageMagick` wrote before there was a chunk for them.
fn profile(info: &Info<'_>) -> Result<Option<String>, ImageError> {
    if let Some(plain) = info.uncompressed_latin1_text.iter().find(|text| text.keyword == PROFILE) {
        return Ok(Some(plain.text.clone()));
    }
    let packed = info.compressed_latin1_text.iter().find(|text| text.keyword == PROFILE);
    packed.map(ZTXtChunk::get_text).transpose().map_err(refused)
}

/// The bytes that stand in hexadecimal digits behind three lines, as Python's `bytes.fromhex` reads them: with any spaces
/// between two bytes, but not within one. A new line is no space.
fn from_digits(text: &str) -> Option<Vec<u8>> {
    let is_space = |character: char| character.is_ascii_whitespace() || character == '\x0b';
    let lines = text.split('\n').skip(3).collect::<String>();
    let mut characters = lines.chars();
    let mut bytes = Vec::new();
    while let Some(high) = characters.find(|&character| !is_space(character)) {
        let digits = [high.to_digit(16)?, characters.next()?.to_digit(16)?];
        bytes.push(u8::try_from(digits[0] << 4 | digits[1]).ok()?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
