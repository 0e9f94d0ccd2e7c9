//! Angles of positions that were met before: a step over a prompt would take milliseconds for their sines.

use super::{rope::RopeConfig, shape::Axis};
use crate::engine::native::backend::Angles;

/// How many positions are computed at a time.
const POSITIONS: usize = 64;

/// The angles of one way of rotating, in pages of [`POSITIONS`], as far as a position of a page was met.
#[derive(Debug, Default)]
pub(super) struct KnownAngles {
    pages: Vec<Option<Angles>>,
}

impl KnownAngles {
    /// The angles of tokens that have a place in time, a row and a column, of which each pair of numbers is turned by one.
    /// Where all three are the same, they are those [of this position](Self::of).
    pub(super) fn of_places(&mut self, rope: &RopeConfig, axes: &[Axis], places: &[[usize; 3]]) -> Angles {
        let pairs = rope.frequencies.len();
        let mut angles = Angles {
            cosines: Vec::with_capacity(places.len() * pairs),
            sines: Vec::with_capacity(places.len() * pairs),
        };
        for place in places {
            let [time, row, column] = place.map(|position| self.page(rope, position));
            let of = |axis: &Axis| match axis {
                Axis::Time => time,
                Axis::Row => row,
                Axis::Column => column,
            };
            for (pair, axis) in axes.iter().enumerate() {
                let (page, first) = of(axis);
                let page = self.pages[page].as_ref().expect("it was just made");
                angles.cosines.push(page.cosines[first + pair]);
                angles.sines.push(page.sines[first + pair]);
            }
        }
        angles
    }

    /// The number of a position's page, and where its angles begin there.
    fn page(&mut self, rope: &RopeConfig, position: usize) -> (usize, usize) {
        let (page, row) = (position / POSITIONS, position % POSITIONS * rope.frequencies.len());
        if self.pages.len() <= page {
            self.pages.resize(page + 1, None);
        }
        let first = page * POSITIONS;
        self.pages[page].get_or_insert_with(|| rope.angles(first..first + POSITIONS));
        (page, row)
    }

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

    #[test]
    fn pairs_are_turned_by_the_coordinate_that_is_theirs() {
        let rope = RopeConfig { frequencies: vec![1.0, 0.25, 0.001], factor: 1.5, far: None };
        let (mut known, axes) = (KnownAngles::default(), [Axis::Column, Axis::Time, Axis::Row]);
        let found = known.of_places(&rope, &axes, &[[7, 70, 5], [9, 9, 9]]);
        let [time, row, column, same] = [7, 70, 5, 9].map(|position| known.of(&rope, &[position]).cosines);
        assert_eq!(found.cosines, [column[0], time[1], row[2], same[0], same[1], same[2]]);
        let sines = [5, 7, 70].map(|position| known.of(&rope, &[position]).sines);
        assert_eq!(found.sines[..3], [sines[0][0], sines[1][1], sines[2][2]]);
    }
}
