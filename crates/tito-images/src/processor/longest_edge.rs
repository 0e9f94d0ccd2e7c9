//! The size that an image gets, as `get_resize_output_image_size` of transformers' `image_processing_pixtral.py` computes it.

use crate::error::ImageError;

/// Which sizes an image may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LongestEdge {
    /// Both sides are multiples of it, in pixels.
    pub(super) factor: u32,
    /// The longest side, before sides are rounded up. No image is enlarged to it.
    pub(super) edge: u32,
}

impl LongestEdge {
    /// The size (width, height) for an image of `width` times `height` pixels, neither of them zero.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "as Python computes it, of numbers that are not negative"
    )]
    pub(super) fn of(self, width: u32, height: u32) -> Result<(u64, u64), ImageError> {
        let (wide, high, edge) = (f64::from(width), f64::from(height), f64::from(self.edge));
        let ratio = (high / edge).max(wide / edge);
        let (wide, high) = if ratio > 1.0 { ((wide / ratio).floor(), (high / ratio).floor()) } else { (wide, high) };
        if wide < 1.0 || high < 1.0 {
            return Err(ImageError::Vanishing { width, height, edge: self.edge });
        }
        let whole = |side: f64| (side as u64).next_multiple_of(self.factor.into());
        Ok((whole(wide), whole(high)))
    }
}

#[cfg(test)]
mod tests {
    use super::LongestEdge;
    use crate::error::ImageError;

    const SIZES: LongestEdge = LongestEdge { factor: 28, edge: 1540 };

    #[test]
    fn sides_are_rounded_up_and_no_image_is_enlarged_otherwise() {
        assert_eq!(SIZES.of(1, 1), Ok((28, 28)));
        assert_eq!(SIZES.of(28, 29), Ok((28, 56)));
        assert_eq!(SIZES.of(1540, 1540), Ok((1540, 1540)));
        assert_eq!(SIZES.of(1513, 100), Ok((1540, 112)));
    }

    #[test]
    fn the_longest_edge_is_the_bound_of_both_sides() {
        assert_eq!(SIZES.of(3080, 1540), Ok((1540, 784)));
        assert_eq!(SIZES.of(100, 3080), Ok((56, 1540)));
        assert_eq!(LongestEdge { edge: 30, ..SIZES }.of(1000, 1000), Ok((56, 56)));
    }

    #[test]
    fn a_side_that_would_vanish_is_refused() {
        assert!(SIZES.of(1540, 1).is_ok());
        let error = SIZES.of(1, 100_000).unwrap_err();
        assert_eq!(error, ImageError::Vanishing { width: 1, height: 100_000, edge: 1540 });
        let words = "image dimensions 1x100000: one side would have no pixels if the other one had 1540";
        assert_eq!(error.to_string(), words);
        assert!(SIZES.of(u32::MAX, 1).is_err());
    }
}
