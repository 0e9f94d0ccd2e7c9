//! The size that an image gets, as `smart_resize` of transformers' `image_processing_qwen2_vl.py` computes it, and that of
//! `image_processing_glm4v.py`.

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
    /// What else there is to sizes.
    pub(super) rules: SizeRules,
}

/// Whose sizes they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SizeRules {
    /// Those of Qwen: limits are those of one image.
    Qwen,
    /// Those of GLM: limits are those of as many images as stand in a patch, and an image that is shorter or narrower than one
    /// factor is enlarged first, so that it has that on both sides.
    Glm {
        /// How many images stand in a patch.
        frames: u32,
    },
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
        let factor = f64::from(self.factor);
        let (wide, high) = self.enlarged(f64::from(width), f64::from(height));
        let ratio = wide.max(high) / wide.min(high);
        if ratio > MAX_ASPECT_RATIO {
            return Err(ImageError::AspectRatio(ratio));
        }
        let multiple = |side: f64| side as u64 * u64::from(self.factor);
        let nearest = |side: f64| multiple((side / factor).round_ties_even());
        let pixels = f64::from(self.frames()) * wide * high;
        let (new_width, new_height) = (nearest(wide), nearest(high));
        let rounded = u64::from(self.frames()).saturating_mul(new_width).saturating_mul(new_height);
        if rounded > self.most {
            let by = (pixels / self.most as f64).sqrt();
            let smaller = |side: f64| multiple((side / by / factor).floor()).max(self.factor.into());
            return Ok((smaller(wide), smaller(high)));
        }
        if rounded < self.fewest {
            let by = (self.fewest as f64 / pixels).sqrt();
            let larger = |side: f64| multiple((side * by / factor).ceil());
            return Ok((larger(wide), larger(high)));
        }
        Ok((new_width, new_height))
    }

    /// The fewest pixels that an image gets. Where the bounds are close, one that is made smaller may get fewer than are asked for:
    /// a side of whole factors may be half of what it was.
    pub(super) fn fewest_pixels(self) -> u64 {
        self.fewest.min(self.most / 4) / u64::from(self.frames())
    }

    /// How often the pixels of an image count.
    pub(super) fn frames(self) -> u32 {
        match self.rules {
            SizeRules::Qwen => 1,
            SizeRules::Glm { frames } => frames,
        }
    }

    /// Whole sides of which none is shorter than one factor (but for what Python's arithmetic cuts off), where rules are so.
    fn enlarged(self, wide: f64, high: f64) -> (f64, f64) {
        let factor = f64::from(self.factor);
        if self.rules == SizeRules::Qwen || (wide >= factor && high >= factor) {
            return (wide, high);
        }
        let by = (factor / high).max(factor / wide);
        ((wide * by).trunc(), (high * by).trunc())
    }
}

#[cfg(test)]
mod tests {
    use super::{SizeRules, SmartResize};
    use crate::error::ImageError;

    const SIZES: SmartResize = SmartResize { factor: 28, fewest: 3136, most: 12_845_056, rules: SizeRules::Qwen };
    const TWICE: SmartResize =
        SmartResize { factor: 28, fewest: 12_544, most: 11_760_000, rules: SizeRules::Glm { frames: 2 } };

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
    fn no_image_gets_fewer_pixels_than_the_fewest() {
        for sizes in [SIZES, TWICE, SmartResize { fewest: 28 * 28 * 9, most: 28 * 28 * 12, ..SIZES }] {
            for (width, height) in (1..60).flat_map(|width| (1..60).map(move |height| (7 * width, 11 * height))) {
                let Ok((wide, high)) = sizes.of(width, height) else { continue };
                assert!(wide * high >= sizes.fewest_pixels(), "{wide} by {high} of {width} by {height}");
            }
        }
        assert_eq!((SIZES.fewest_pixels(), TWICE.fewest_pixels()), (3136, 12_544 / 2));
    }

    #[test]
    fn a_side_of_more_than_two_hundred_times_the_other_is_refused() {
        assert!(SIZES.of(200, 1).is_ok());
        assert_eq!(SIZES.of(201, 1), Err(ImageError::AspectRatio(201.0)));
        let error = SIZES.of(2, 403).unwrap_err();
        assert_eq!(error.to_string(), "absolute aspect ratio must be smaller than 200, got 201.5");
    }

    #[test]
    fn limits_of_glm_are_those_of_two_images_and_short_sides_are_enlarged_before_all() {
        assert_eq!(TWICE.of(1, 1), Ok((84, 84)));
        assert_eq!(TWICE.of(112, 56), Ok((112, 56)));
        assert_eq!(TWICE.of(84, 56), Ok((112, 84)));
        assert_eq!(TWICE.of(10_000, 10_000), Ok((2408, 2408)));
        assert_eq!(TWICE.of(1, 200), Ok((28, 5600)));
        assert_eq!(TWICE.of(1, 201), Err(ImageError::AspectRatio(201.0)));
        // No overflow, whatever a side is.
        assert_eq!(TWICE.of(u32::MAX, 1), Err(ImageError::AspectRatio(4_294_967_295.0)));
        assert_eq!(TWICE.of(u32::MAX, u32::MAX), Ok((2408, 2408)));
    }
}
