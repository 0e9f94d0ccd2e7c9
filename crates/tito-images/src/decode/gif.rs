//! GIF files.
use super::Raster;
use crate::{decoded::ImageLimits, error::ImageError};

pub(super) fn decode(_: &[u8], _: &ImageLimits) -> Result<Raster, ImageError> {
    Err(ImageError::NotAnImage)
}
