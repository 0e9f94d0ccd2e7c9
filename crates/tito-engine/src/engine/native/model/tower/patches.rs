//! Where the patches of an image are: their order, which of them attend to each other, and their positions.
//!
//! As `vision_utils.py` of transformers has it, in f32 where it does. Positions that are interpolated with cubic curves are as
//! `torch.nn.functional.grid_sample` has them, which `modeling_glm4v.py` calls.

use std::ops::Range;

use tito_images::Grid;

use super::super::{
    rope::{RopeConfig, frequencies},
    shape::{Interpolation, TowerShape},
};
use crate::engine::native::backend::Angles;

/// The patches of an image in the order in which they are computed: window by window, joined ones side by side.
pub(super) struct Patches {
    grid: Grid,
    merge: usize,
    /// Whether a state that is of no patch comes first.
    class_token: bool,
    /// The joined patches, by their number in the image.
    order: Vec<usize>,
    /// The patches of each window.
    pub(super) windows: Vec<Range<usize>>,
}

/// A part of the position of a patch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tap {
    /// The row of the patch.
    pub(super) row: usize,
    /// The place in the table of positions.
    pub(super) id: u32,
    /// How much it counts.
    pub(super) weight: f32,
}

impl Patches {
    pub(super) fn of(grid: Grid, shape: &TowerShape) -> Self {
        let merge = shape.patch.merge;
        let (rows, columns) = (grid.rows / merge, grid.columns / merge);
        let is_whole = shape.layers.iter().all(|whole| *whole);
        let side = if is_whole { rows.max(columns).max(1) } else { shape.window };
        let (mut order, mut windows) = (Vec::with_capacity(rows * columns), Vec::new());
        for top in (0..rows).step_by(side) {
            for left in (0..columns).step_by(side) {
                let first = order.len();
                for row in top..rows.min(top + side) {
                    order.extend((left..columns.min(left + side)).map(|column| row * columns + column));
                }
                windows.push(first * merge * merge..order.len() * merge * merge);
            }
        }
        Self { grid, merge, class_token: shape.class_token, order, windows }
    }

    /// All states: those of the patches, and the one before them where there is one.
    pub(super) fn all(&self) -> Range<usize> {
        0..self.grid.patches() + usize::from(self.class_token)
    }

    /// Rows of an image, each of so many numbers and in the order of the image, in this order.
    pub(super) fn gathered(&self, numbers: &[f32], columns: usize) -> Vec<f32> {
        let joined = columns * self.merge * self.merge;
        let mut gathered = Vec::with_capacity(numbers.len());
        for place in &self.order {
            gathered.extend_from_slice(&numbers[place * joined..(place + 1) * joined]);
        }
        gathered
    }

    /// Rows of joined patches in the order of the image.
    pub(super) fn in_order(&self, numbers: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; numbers.len()];
        let columns = numbers.len() / self.order.len().max(1);
        for (row, place) in numbers.chunks_exact(columns.max(1)).zip(&self.order) {
            out[place * columns..(place + 1) * columns].copy_from_slice(row);
        }
        out
    }

    /// The places of all patches in a row-by-row table of positions.
    pub(super) fn table_rows(&self) -> impl Iterator<Item = usize> {
        self.places().map(|(row, column)| row * self.grid.columns + column)
    }

    /// The row and the column of each patch.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        let (merge, columns) = (self.merge, self.grid.columns / self.merge);
        self.order.iter().flat_map(move |place| {
            let (top, left) = (place / columns * merge, place % columns * merge);
            (0..merge * merge).map(move |inner| (top + inner / merge, left + inner % merge))
        })
    }

    /// The angles of all patches: a head's pairs turn by rows in their first half, and by columns in the second one. `None`
    /// where nothing is rotated.
    pub(super) fn angles(&self, shape: &TowerShape) -> Option<Angles> {
        let (theta, width) = (shape.theta?, shape.head_dim());
        let of_axes = if shape.alternating {
            let all = frequencies(theta, width);
            [0, 1].map(|first| all.iter().copied().skip(first).step_by(2).collect())
        } else {
            [0, 1].map(|_| frequencies(theta, width / 2))
        };
        // Those of a row or a column are the same in all of its patches.
        let [rows, columns] = of_axes.map(|frequencies: Vec<f64>| RopeConfig::unscaled(&frequencies));
        let (rows, columns) = (rows.angles(0..self.grid.rows), columns.angles(0..self.grid.columns));
        let pairs = width / 4;
        let mut angles = Angles::default();
        for (row, column) in self.places() {
            for (known, place) in [(&rows, row), (&columns, column)] {
                let own = place * pairs..(place + 1) * pairs;
                angles.cosines.extend_from_slice(&known.cosines[own.clone()]);
                angles.sines.extend_from_slice(&known.sines[own]);
            }
        }
        Some(angles)
    }

    /// For each patch the places of a square of `count` positions that its own is between, or the one that it is at where the
    /// image is as large as the square.
    pub(super) fn taps(&self, count: usize, interpolation: Interpolation) -> Vec<Tap> {
        let side = count.isqrt();
        let id = |y, x| u32::try_from(y * side + x).expect("a table of positions has fewer than 2^32 rows");
        if self.grid == (Grid { rows: side, columns: side }) {
            let places = self.places().enumerate();
            return places.map(|(row, (y, x))| Tap { row, id: id(y, x), weight: 1.0 }).collect();
        }
        let axis = |index, count| match interpolation {
            Interpolation::Linear => linear(index, count, side).to_vec(),
            Interpolation::Cubic => cubic(index, count, side).to_vec(),
        };
        // Those of a row or a column are the same in all of its patches.
        let all = |count| -> Vec<Vec<(usize, f32)>> { (0..count).map(|index| axis(index, count)).collect() };
        let (rows, columns) = (all(self.grid.rows), all(self.grid.columns));
        let mut taps = Vec::new();
        for (row, (y, x)) in self.places().enumerate() {
            for &(top, height) in &rows[y] {
                taps.extend(columns[x].iter().map(|&(left, width)| Tap {
                    row,
                    id: id(top, left),
                    weight: height * width,
                }));
            }
        }
        taps
    }
}

/// The two places of a line of `side` positions that the one at `index` of `count` is between, ends at ends, and how much they
/// count.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a side has fewer than 2^24 positions"
)]
fn linear(index: usize, count: usize, side: usize) -> [(usize, f32); 2] {
    let place = index as f32 * (side - 1) as f32 / count.saturating_sub(1).max(1) as f32;
    let floor = place.floor();
    let last = side - 1;
    let weight = |offset: f32| (1.0 - (place - floor - offset).abs()).max(0.0);
    [((floor as usize).min(last), weight(0.0)), ((floor as usize + 1).min(last), weight(1.0))]
}

/// The four places of a line of `side` positions that are nearest to the middle of part `index` of `count`, and how much they
/// count. Beyond an end of the line is what is at the end.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a side has fewer than 2^24 positions, and no place that is kept is negative"
)]
fn cubic(index: usize, count: usize, side: usize) -> [(usize, f32); 4] {
    let (middle, last) = (2.0 * ((index as f32 + 0.5) / count as f32) - 1.0, (side - 1) as f32);
    let place = ((middle + 1.0) * side as f32 - 1.0) / 2.0;
    let floor = place.floor();
    let past = place - floor;
    let at = |offset: f32| (floor + offset).clamp(0.0, last) as usize;
    [
        (at(-1.0), far_cubic(1.0 + past)),
        (at(0.0), near_cubic(past)),
        (at(1.0), near_cubic(1.0 - past)),
        (at(2.0), far_cubic(2.0 - past)),
    ]
}

/// How sharply the curves bend, as in torch.
const BEND: f32 = -0.75;

/// How much a position counts at most 1 from where it is.
fn near_cubic(distance: f32) -> f32 {
    ((BEND + 2.0) * distance - (BEND + 3.0)) * distance * distance + 1.0
}

/// How much a position counts 1 to 2 from where it is.
fn far_cubic(distance: f32) -> f32 {
    ((BEND * distance - 5.0 * BEND) * distance + 8.0 * BEND) * distance - 4.0 * BEND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_an_image_are_at_the_ends_of_the_table() {
        assert_eq!(linear(0, 7, 48), [(0, 1.0), (1, 0.0)]);
        assert_eq!(linear(6, 7, 48), [(47, 1.0), (47, 0.0)]);
        assert_eq!(linear(0, 1, 48), [(0, 1.0), (1, 0.0)]);
        assert_eq!(linear(1, 3, 4), [(1, 0.5), (2, 0.5)]);
        assert_eq!(linear(0, 5, 1), [(0, 1.0), (0, 0.0)]);
    }

    #[test]
    fn curves_go_through_positions_and_are_flat_beyond_the_ends_of_the_table() {
        let halves = [-0.09375, 0.59375, 0.59375, -0.09375];
        assert_eq!(cubic(1, 2, 4), [1, 2, 3, 3].into_iter().zip(halves).collect::<Vec<_>>()[..]);
        assert_eq!(cubic(0, 2, 4), [0, 0, 1, 2].into_iter().zip(halves).collect::<Vec<_>>()[..]);
        assert_eq!(cubic(1, 4, 4), [(0, 0.0), (1, 1.0), (2, 0.0), (3, 0.0)]);
        assert_eq!(cubic(0, 4, 1).map(|(place, _)| place), [0; 4]);
        // What counts is one in all, also outside of the table.
        for (index, count, side) in [(0, 9, 4), (8, 9, 4), (0, 3, 24), (2, 7, 1), (5, 6, 5)] {
            let all: f32 = cubic(index, count, side).iter().map(|(_, weight)| weight).sum();
            assert!((all - 1.0).abs() < 1e-6, "{index} of {count} in {side}: {all}");
        }
    }
}
