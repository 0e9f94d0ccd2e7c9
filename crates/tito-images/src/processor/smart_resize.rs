//! The size that an image gets, as `smart_resize` of transformers' `image_processing_qwen2_vl.py` computes it.

use crate::error::ImageError;

/// Which sizes an image may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SmartResize {
    /// Both sides are multiples of it, in pixels.
    pub(super) factor: u32,
    /// The fewest pixels, before sides are rounded up.
    pub(super) fewest: u64,
    /// The most pixels, as long as both sides are more than one factor.
    pub(super) most: u64,
}

/// The greatest ratio of the longer side to the shorter.
const MAX_ASPECT_RATIO: f64 = 200.0;

impl SmartResize {
    /// The size (width, height) for an image of `width` times `height` pixels, neither of them zero.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "as Python computes it, of numbers that are not negative"
    )]
    pub(super) fn of(self, width: u32, height: u32) -> Result<(u64, u64), ImageError> {
        let ratio = f64::from(width.max(height)) / f64::from(width.min(height));
        if ratio > MAX_ASPECT_RATIO {
            return Err(ImageError::AspectRatio(ratio));
        }
        let factor = f64::from(self.factor);
        let (wide, high) = (f64::from(width), f64::from(height));
        let multiple = |side: f64| side as u64 * u64::from(self.factor);
        let nearest = |side: f64| multiple((side / factor).round_ties_even());
        let pixels = u64::from(width) * u64::from(height);
        let (new_width, new_height) = (nearest(wide), nearest(high));
        let rounded = new_width.saturating_mul(new_height);
        if rounded > self.most {
            let by = (pixels as f64 / self.most as f64).sqrt();
            let smaller = |side: f64| multiple((side / by / factor).floor()).max(self.factor.into());
            return Ok((smaller(wide), smaller(high)));
        }
        if rounded < self.fewest {
            let by = (self.fewest as f64 / pixels as f64).sqrt();
            let larger = |side: f64| multiple((side * by / factor).ceil());
            return Ok((larger(wide), larger(high)));
        }
        Ok((new_width, new_height))
    }
}

#[cfg(test)]
mod tests {
    use super::SmartResize;
    use crate::error::ImageError;

    const SIZES: SmartResize = SmartResize { factor: 28, fewest: 3136, most: 12_845_056 };

    #[test]
    fn sides_are_rounded_to_the_nearest_multiple_and_halves_to_the_even_one() {
        assert_eq!(SIZES.of(70, 98), Ok((56, 112)));
        assert_eq!(SIZES.of(71, 126), Ok((84, 112)));
    }

    #[test]
    fn few_pixels_become_more_and_many_become_fewer() {
        assert_eq!(SIZES.of(1, 1), Ok((56, 56)));
        assert_eq!(SIZES.of(10_000, 10_000), Ok((3556, 3556)));
        assert_eq!(SmartResize { most: 28 * 28 * 4, ..SIZES }.of(20_000, 100), Ok((784, 28)));
    }

    #[test]
    fn a_side_of_more_than_two_hundred_times_the_other_is_refused() {
        assert!(SIZES.of(200, 1).is_ok());
        assert_eq!(SIZES.of(201, 1), Err(ImageError::AspectRatio(201.0)));
        let error = SIZES.of(2, 403).unwrap_err();
        assert_eq!(error.to_string(), "absolute aspect ratio must be smaller than 200, got 201.5");
    }
}
