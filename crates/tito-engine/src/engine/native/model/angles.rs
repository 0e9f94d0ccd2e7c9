//! Angles of positions that were met before: a step over a prompt would take milliseconds for their sines.

use super::rope::RopeConfig;
use crate::engine::native::backend::Angles;

/// How many positions are computed at a time.
const POSITIONS: usize = 64;

/// The angles of one way of rotating, in pages of [`POSITIONS`], as far as a position of a page was met.
#[derive(Debug, Default)]
pub(super) struct KnownAngles {
    pages: Vec<Option<Angles>>,
}

impl KnownAngles {
    /// The angles of some positions, in their order.
    pub(super) fn of(&mut self, rope: &RopeConfig, positions: &[usize]) -> Angles {
        let pairs = rope.frequencies.len();
        let mut angles = Angles {
            cosines: Vec::with_capacity(positions.len() * pairs),
            sines: Vec::with_capacity(positions.len() * pairs),
        };
        for position in positions {
            let (page, row) = (position / POSITIONS, position % POSITIONS * pairs);
            if self.pages.len() <= page {
                self.pages.resize(page + 1, None);
            }
            let first = page * POSITIONS;
            let page = self.pages[page].get_or_insert_with(|| rope.angles(first..first + POSITIONS));
            angles.cosines.extend_from_slice(&page.cosines[row..row + pairs]);
            angles.sines.extend_from_slice(&page.sines[row..row + pairs]);
        }
        angles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_angles_are_those_that_are_computed() {
        let rope = RopeConfig { frequencies: vec![1.0, 0.25, 0.001], factor: 1.5, far: None };
        let (mut known, positions) = (KnownAngles::default(), [0, 63, 64, 5, 100_000, 63]);
        for _ in 0..2 {
            let found = known.of(&rope, &positions);
            let computed = rope.angles(positions.into_iter());
            assert_eq!((found.cosines, found.sines), (computed.cosines, computed.sines));
        }
        assert_eq!(known.pages.iter().flatten().count(), 3);
    }
}
