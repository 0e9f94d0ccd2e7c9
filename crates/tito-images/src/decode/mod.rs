//! From the encoded bytes of an image to its pixels, as vLLM reads it with Pillow: turned as its EXIF data say, transparency on
//! white, numbers of 16 bits cut as Pillow cuts them, the first frame.
//!
//! Follows vLLM's `multimodal/media/image.py` and `multimodal/image.py`. A deliberate difference: a file that contradicts its
//! kind is refused, where Pillow may make up the pixels that it cannot read.

mod exif;
mod gif;
mod jpeg;
mod orientation;
mod png;
mod webp;

use crate::{
    decoded::{DecodedImage, ImageLimits},
    error::ImageError,
};
use orientation::Orientation;

/// Pixels as a file has them, three bytes each, row by row.
struct Raster {
    width: u32,
    height: u32,
    rgb: Vec<u8>,
}

/// The pixels of the image that `encoded` holds: PNG, JPEG, WebP or GIF, which its first bytes tell.
///
/// # Errors
///
/// If the bytes are no image or not all of one, if there are more pixels than `limits` lets through, or if the file needs
/// something that would not come out as in vLLM.
pub fn decode(encoded: &[u8], limits: &ImageLimits) -> Result<DecodedImage, ImageError> {
    if encoded.starts_with(b"\x89PNG\r\n\x1a\n") {
        let (raster, orientation) = png::decode(encoded, *limits)?;
        return Ok(orientation.turn(raster));
    }
    if encoded.starts_with(b"\xff\xd8\xff") {
        let (raster, orientation) = jpeg::decode(encoded, *limits)?;
        return Ok(orientation.turn(raster));
    }
    if encoded.starts_with(b"RIFF") && encoded.get(8..12) == Some(b"WEBP") {
        let (raster, orientation) = webp::decode(encoded, *limits)?;
        return Ok(orientation.turn(raster));
    }
    if encoded.starts_with(b"GIF87a") || encoded.starts_with(b"GIF89a") {
        return Ok(Orientation::AsIs.turn(gif::decode(encoded, *limits)?));
    }
    Err(ImageError::NotAnImage)
}

/// A colour with as much of it as `alpha` says, on white, as Pillow's `paste` rounds it.
#[expect(clippy::cast_possible_truncation, reason = "a mean of two bytes")]
fn on_white(colour: u8, alpha: u8) -> u8 {
    let (colour, alpha) = (u32::from(colour), u32::from(alpha));
    let sum = colour * alpha + 255 * (255 - alpha) + 128;
    (((sum >> 8) + sum) >> 8) as u8
}

/// The three bytes of a pixel that is red, green, blue and alpha.
fn rgba_on_white([red, green, blue, alpha]: [u8; 4]) -> [u8; 3] {
    [on_white(red, alpha), on_white(green, alpha), on_white(blue, alpha)]
}

#[cfg(test)]
mod tests;
