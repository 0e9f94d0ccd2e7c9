//! The size that an image gets.

use super::{longest_edge::LongestEdge, smart_resize::SmartResize, tiles::Tiles};
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
    /// Squares of one size, as many as the shape of the image asks for.
    Tiles(Tiles),
}

impl Sizes {
    /// The size (width, height) for an image of `width` times `height` pixels, neither of them zero.
    pub(super) fn of(self, width: u32, height: u32) -> Result<(u64, u64), ImageError> {
        match self {
            Self::Smart(sizes) => sizes.of(width, height),
            Self::Square(side) => not_too_long((width, height), (side, side)),
            Self::LongestEdge(sizes) => sizes.of(width, height),
            Self::Tiles(tiles) => not_too_long((width, height), tiles.of(width, height)),
        }
    }

    /// The most pixels of an image, but for those of extreme shapes.
    pub(super) fn most_pixels(self) -> u64 {
        match self {
            Self::Smart(sizes) => sizes.most.max(sizes.fewest.saturating_mul(2)) / u64::from(sizes.frames()),
            Self::Square(side) => u64::from(side) * u64::from(side),
            Self::LongestEdge(LongestEdge { factor, edge }) => u64::from(edge.next_multiple_of(factor)).pow(2),
            Self::Tiles(tiles) => tiles.most_pixels(),
        }
    }

    /// What tells these sizes from others.
    pub(super) fn settings(self) -> Vec<u64> {
        match self {
            Self::Smart(SmartResize { factor, fewest, most, .. }) => vec![factor.into(), fewest, most],
            Self::Square(side) => vec![side.into()],
            Self::LongestEdge(LongestEdge { factor, edge }) => vec![factor.into(), edge.into()],
            Self::Tiles(Tiles { side, fewest, most }) => vec![side.into(), fewest.into(), most.into()],
        }
    }
}

/// The size `to`, unless there is no room for what lies between two directions of a resize. It goes across first, so that a
/// narrow image that is long becomes as long and wide.
fn not_too_long((width, height): (u32, u32), to: (u32, u32)) -> Result<(u64, u64), ImageError> {
    if u64::from(to.0) * u64::from(height) > MOST_BETWEEN {
        return Err(ImageError::TooLong { width, height, to });
    }
    Ok((to.0.into(), to.1.into()))
}
