//! WebP files.
use super::{Raster, orientation::Orientation};
use crate::{decoded::ImageLimits, error::ImageError};

pub(super) fn decode(_: &[u8], _: &ImageLimits) -> Result<(Raster, Orientation), ImageError> {
    Err(ImageError::NotAnImage)
}
