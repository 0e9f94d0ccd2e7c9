//! WebP files, lossy and lossless; of an animation the first frame.
//!
//! They have no checksums. A damaged one that still has the form of an image is decoded, as libwebp does, and may come out
//! otherwise than there: both let numbers overflow that no encoder writes, each in its own way.

mod container;

use std::io::{Cursor, ErrorKind};

use image_webp::{DecodingError, WebPDecoder};

use super::{Raster, orientation::Orientation, rgba_on_white};
use crate::{decoded::ImageLimits, error::ImageError};
use container::{Container, frame_chunks};

const KIND: &str = "WebP";

pub(super) fn decode(encoded: &[u8], limits: ImageLimits) -> Result<(Raster, Orientation), ImageError> {
    let container = Container::read(encoded)?;
    let file = container.for_decoder();
    let mut decoder = WebPDecoder::new(Cursor::new(&*file)).map_err(refused)?;
    let (width, height) = decoder.dimensions();
    let pixels = limits.check(width, height)?;
    check_frames(container, width, height)?;
    let channels = if decoder.has_alpha() { 4 } else { 3 };
    let mut samples = vec![0; channels * pixels];
    decoder.read_image(&mut samples).map_err(refused)?;
    let rgb = match channels {
        3 => samples,
        _ => samples.as_chunks().0.iter().flat_map(|&colour| rgba_on_white(colour)).collect(),
    };
    Ok((Raster { width, height, rgb }, container.metadata().orientation(KIND)?))
}

fn refused(error: DecodingError) -> ImageError {
    match error {
        DecodingError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => ImageError::Truncated,
        error => ImageError::broken(KIND, error.to_string()),
    }
}

/// Refuses what the decoder would allocate more for than the image has pixels, and first frames that are only a part of it,
/// as decoders do not agree on what is around them.
fn check_frames(container: Container<'_>, width: u32, height: u32) -> Result<(), ImageError> {
    for chunk in container.chunks() {
        let is_frame = chunk.name == b"ANMF";
        if is_frame && !covers(chunk.content, width, height) {
            return Err(ImageError::unsupported(KIND, "its first frame is smaller than the image"));
        }
        for part in frame_chunks(&chunk).filter(|_| is_frame).chain([chunk]) {
            if part.name == b"VP8 " && lossy_size(part.content) != Some((width, height)) {
                return Err(ImageError::broken(KIND, "a frame has another size than the image"));
            }
        }
        if is_frame {
            break;
        }
    }
    Ok(())
}

/// The width and the height of a lossy frame (RFC 6386, section 9.1), without the digits that say how to scale it.
fn lossy_size(frame: &[u8]) -> Option<(u32, u32)> {
    let &[width_0, width_1, height_0, height_1] = frame.get(6..)?.first_chunk()?;
    let side = |low, high| u32::from(u16::from_le_bytes([low, high]) & 0x3fff);
    Some((side(width_0, width_1), side(height_0, height_1)))
}

/// Whether a frame is the whole image.
fn covers(frame: &[u8], width: u32, height: u32) -> bool {
    let number = |place: usize| {
        let bytes = frame.get(place..)?.first_chunk::<3>()?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]))
    };
    [0, 3, 6, 9].map(number) == [0, 0, width.wrapping_sub(1), height.wrapping_sub(1)].map(Some)
}

#[cfg(test)]
mod tests;
