//! The pixels of an image.

use crate::error::ImageError;

/// What an image may cost before it is known to be good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLimits {
    /// The most pixels of an image, as its file declares them. Decoding holds at most 18 bytes for each, besides a few
    /// megabytes; files that declare more are refused before anything is allocated for them.
    pub pixels: u64,
}

/// vLLM's `VLLM_MAX_IMAGE_PIXELS`.
impl Default for ImageLimits {
    fn default() -> Self {
        Self { pixels: 178_956_970 }
    }
}

impl ImageLimits {
    /// How many pixels `width` times `height` are, unless they are none or too many.
    pub(crate) fn check(self, width: u32, height: u32) -> Result<usize, ImageError> {
        let pixels = u64::from(width) * u64::from(height);
        if pixels == 0 {
            return Err(ImageError::NoPixels { width, height });
        }
        let too_many = ImageError::TooManyPixels { width, height, limit: self.pixels };
        if pixels > self.pixels {
            return Err(too_many);
        }
        // Sizes of buffers are at most 16 times that.
        usize::try_from(pixels).ok().filter(|&pixels| pixels <= usize::MAX / 64).ok_or(too_many)
    }
}

/// Red, green and blue of each pixel, as a person would see the image: turned as its EXIF data say, transparency on white.
#[derive(Clone, PartialEq, Eq)]
pub struct DecodedImage {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl DecodedImage {
    /// Of three bytes for each pixel, row by row.
    pub(crate) fn new(width: u32, height: u32, pixels: Vec<u8>) -> Self {
        assert_eq!(pixels.len() as u64, 3 * u64::from(width) * u64::from(height), "{width}x{height}");
        Self { width, height, pixels }
    }

    /// Pixels from left to right.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Pixels from top to bottom.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Red, green and blue of each pixel, row by row.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }
}

/// Without the pixels.
impl std::fmt::Debug for DecodedImage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { width, height, .. } = self;
        formatter.debug_struct("DecodedImage").field("width", width).field("height", height).finish_non_exhaustive()
    }
}
