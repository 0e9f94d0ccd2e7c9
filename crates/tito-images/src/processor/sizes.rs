//! The size that an image gets.

use super::{longest_edge::LongestEdge, smart_resize::SmartResize};
use crate::error::ImageError;

/// The most pixels between two directions of a resize, which are as many as the most that are decoded.
const MOST_BETWEEN: u64 = 178_956_970;

/// Which sizes images get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sizes {
    /// Multiples of a factor, within limits.
    Smart(SmartResize),
    /// A square of this side, whatever the image is.
    Square(u32),
    /// Multiples of a factor, up to a longest edge.
    LongestEdge(LongestEdge),
}

impl Sizes {
    /// The size (width, height) for an image of `width` times `height` pixels, neither of them zero.
    pub(super) fn of(self, width: u32, height: u32) -> Result<(u64, u64), ImageError> {
        match self {
            Self::Smart(sizes) => sizes.of(width, height),
            // A resize goes across first: a narrow image that is long becomes as long and wide.
            Self::Square(side) if u64::from(side) * u64::from(height) > MOST_BETWEEN => {
                Err(ImageError::TooLong { width, height, side })
            }
            Self::Square(side) => Ok((side.into(), side.into())),
            Self::LongestEdge(sizes) => sizes.of(width, height),
        }
    }

    /// The most pixels of an image, but for those of extreme shapes.
    pub(super) fn most_pixels(self) -> u64 {
        match self {
            Self::Smart(SmartResize { fewest, most, .. }) => most.max(fewest.saturating_mul(2)),
            Self::Square(side) => u64::from(side) * u64::from(side),
            Self::LongestEdge(LongestEdge { factor, edge }) => u64::from(edge.next_multiple_of(factor)).pow(2),
        }
    }

    /// What tells these sizes from others.
    pub(super) fn settings(self) -> Vec<u64> {
        match self {
            Self::Smart(SmartResize { factor, fewest, most }) => vec![factor.into(), fewest, most],
            Self::Square(side) => vec![side.into()],
            Self::LongestEdge(LongestEdge { factor, edge }) => vec![factor.into(), edge.into()],
        }
    }
}
