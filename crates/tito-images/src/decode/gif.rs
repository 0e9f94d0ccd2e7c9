//! GIF files: the first frame, as Pillow sees it.

use std::io::{Cursor, ErrorKind};

use gif::{ColorOutput, DecodeOptions, Decoder, DecodingError, MemoryLimit};

use super::Raster;
use crate::{decoded::ImageLimits, error::ImageError};

const KIND: &str = "GIF";

pub(super) fn decode(encoded: &[u8], limits: ImageLimits) -> Result<Raster, ImageError> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    // Sizes are checked here.
    options.set_memory_limit(MemoryLimit::Unlimited);
    let mut decoder = options.read_info(Cursor::new(encoded)).map_err(refused)?;
    limits.check(decoder.width().into(), decoder.height().into())?;
    let frame =
        decoder.next_frame_info().map_err(refused)?.ok_or_else(|| ImageError::broken(KIND, "it has no frame"))?;
    let (left, top) = (u32::from(frame.left), u32::from(frame.top));
    let (wide, high) = (u32::from(frame.width), u32::from(frame.height));
    let transparent = frame.transparent;
    limits.check(wide, high)?;
    // A frame that stands out makes the image larger.
    let width = u32::from(decoder.width()).max(left + wide);
    let height = u32::from(decoder.height()).max(top + high);
    let pixels = limits.check(width, height)?;

    let mut frame = vec![0; wide as usize * high as usize];
    decoder.read_into_buffer(&mut frame).map_err(refused)?;
    let mut indices = vec![transparent.unwrap_or(0); pixels];
    for (y, row) in frame.chunks_exact(wide as usize).enumerate() {
        indices[(top as usize + y) * width as usize + left as usize..][..row.len()].copy_from_slice(row);
    }
    Ok(Raster { width, height, rgb: colours(&decoder, &indices, transparent)? })
}

fn refused(error: DecodingError) -> ImageError {
    match error {
        DecodingError::Io(error) if error.kind() == ErrorKind::UnexpectedEof => ImageError::Truncated,
        error => ImageError::broken(KIND, error.to_string()),
    }
}

/// Red, green and blue of the colours that the indices stand for.
fn colours(decoder: &Decoder<Cursor<&[u8]>>, indices: &[u8], transparent: Option<u8>) -> Result<Vec<u8>, ImageError> {
    let (palette, _) = decoder.palette().map_err(refused)?.as_chunks::<3>();
    let mut rgb = Vec::with_capacity(3 * indices.len());
    for &index in indices {
        let colour = match palette.get(usize::from(index)) {
            _ if transparent == Some(index) => [255; 3],
            Some(&colour) => colour,
            None => return Err(ImageError::broken(KIND, "a pixel has none of its colours")),
        };
        rgb.extend(colour);
    }
    Ok(rgb)
}
