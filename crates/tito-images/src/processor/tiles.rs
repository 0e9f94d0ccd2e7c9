//! The squares that an image is cut into, as `get_optimal_tiled_canvas` and `crop_image_to_patches` of transformers'
//! `image_processing_got_ocr2.py` choose and make them.

/// How many squares an image may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tiles {
    /// The side of a square, in pixels.
    pub(super) side: u32,
    /// The fewest squares, and the most of them, without the one that shows the whole image.
    pub(super) fewest: u32,
    pub(super) most: u32,
}

impl Tiles {
    /// The size (width, height) for an image of `width` times `height` pixels, neither of them zero: whole squares.
    pub(super) fn of(self, width: u32, height: u32) -> (u32, u32) {
        let (columns, rows) = self.grid(width, height);
        (self.side * columns, self.side * rows)
    }

    /// How many squares an image of this size becomes: where there are several, one more shows all of it.
    pub(super) fn count(self, (wide, high): (u32, u32)) -> u32 {
        let count = (wide / self.side) * (high / self.side);
        if count == 1 { 1 } else { count + 1 }
    }

    /// Whether some image becomes so many squares.
    pub(super) fn makes(self, squares: u32) -> bool {
        if squares == 1 {
            return self.fewest <= 1 || self.most < self.fewest;
        }
        (self.fewest.max(2)..=self.most).contains(&squares.saturating_sub(1))
    }

    /// The most pixels of all squares of an image.
    pub(super) fn most_pixels(self) -> u64 {
        (u64::from(self.most.max(1)) + 1) * u64::from(self.side) * u64::from(self.side)
    }

    /// The pixels of all squares of an image of this size, one below the other, and then those of the whole image, which
    /// `small` resizes to a square.
    pub(super) fn cut(self, pixels: Vec<u8>, (wide, high): (u32, u32), small: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
        if self.count((wide, high)) == 1 {
            return pixels;
        }
        let (side, line) = (self.side as usize, 3 * wide as usize);
        let mut squares = Vec::with_capacity(pixels.len() + 3 * side * side);
        for rows in pixels.chunks_exact(side * line) {
            for left in (0..line).step_by(3 * side) {
                for row in rows.chunks_exact(line) {
                    squares.extend_from_slice(&row[left..left + 3 * side]);
                }
            }
        }
        squares.extend(small());
        squares
    }

    /// Columns and rows of squares: those whose shape is closest to that of the image. Among shapes that are equally close it
    /// is the one of more squares, while the image has more than half as many pixels as these.
    fn grid(self, width: u32, height: u32) -> (u32, u32) {
        let ratio = f64::from(width) / f64::from(height);
        let area = f64::from(width) * f64::from(height);
        let (mut best, mut least) = ((1, 1), f64::INFINITY);
        for (columns, rows) in self.grids() {
            let off = (ratio - f64::from(columns) / f64::from(rows)).abs();
            let pixels = f64::from(self.side) * f64::from(self.side) * f64::from(columns) * f64::from(rows);
            #[expect(clippy::float_cmp, reason = "as transformers compares them, in f64")]
            let is_larger = off == least && area > 0.5 * pixels;
            if off < least || is_larger {
                best = (columns, rows);
            }
            least = least.min(off);
        }
        best
    }

    /// All grids, those of fewer squares first, and of as many squares the narrow ones first.
    fn grids(self) -> Vec<(u32, u32)> {
        let of_width = |columns: u32| (1..=self.most / columns).map(move |rows| (columns, rows));
        let mut grids: Vec<(u32, u32)> = (1..=self.most).flat_map(of_width).collect();
        grids.retain(|(columns, rows)| columns * rows >= self.fewest);
        grids.sort_by_key(|(columns, rows)| columns * rows);
        grids
    }
}

#[cfg(test)]
mod tests {
    use super::Tiles;

    const TILES: Tiles = Tiles { side: 448, fewest: 1, most: 12 };

    #[test]
    fn the_shape_of_an_image_decides_its_squares() {
        assert_eq!(TILES.of(1, 1), (448, 448));
        assert_eq!(TILES.of(300, 100), (3 * 448, 448));
        assert_eq!(TILES.of(10, 5000), (448, 12 * 448));
        assert_eq!(TILES.of(800, 600), (4 * 448, 3 * 448));
        assert_eq!(Tiles { most: 1, ..TILES }.of(3000, 1000), (448, 448));
        // Nothing fits.
        assert_eq!(Tiles { fewest: 5, most: 4, ..TILES }.of(3000, 1000), (448, 448));
    }

    #[test]
    fn only_squares_that_an_image_becomes_are_made() {
        let made = |fewest, most| {
            (0..20).filter(|squares| Tiles { side: 448, fewest, most }.makes(*squares)).collect::<Vec<_>>()
        };
        assert_eq!(made(1, 4), [1, 3, 4, 5]);
        assert_eq!(made(1, 1), [1]);
        assert_eq!(made(3, 5), [4, 5, 6]);
        assert_eq!(made(5, 4), [1], "nothing fits");
        // Those that there are images for, and no other.
        for (fewest, most) in [(1, 6), (2, 6), (4, 6)] {
            let tiles = Tiles { side: 2, fewest, most };
            let mut counts: Vec<u32> =
                (1..40).flat_map(|width| (1..40).map(move |height| tiles.count(tiles.of(width, height)))).collect();
            counts.sort_unstable();
            counts.dedup();
            assert!(counts.iter().all(|squares| tiles.makes(*squares)), "{counts:?} of {fewest} to {most}");
        }
    }

    #[test]
    fn among_grids_of_one_shape_the_pixels_decide() {
        // One square, four or nine of them: more than half as many pixels.
        assert_eq!(TILES.of(633, 633), (448, 448));
        assert_eq!(TILES.of(634, 634), (2 * 448, 2 * 448));
        assert_eq!(TILES.of(950, 950), (2 * 448, 2 * 448));
        assert_eq!(TILES.of(951, 951), (3 * 448, 3 * 448));
        assert_eq!(Tiles { fewest: 2, ..TILES }.of(5, 5), (2 * 448, 2 * 448));
    }

    #[test]
    fn squares_are_cut_row_by_row_and_the_whole_image_is_the_last_one() {
        let tiles = Tiles { side: 1, ..TILES };
        let pixels: Vec<u8> = (0..18).collect();
        assert_eq!(tiles.count((3, 2)), 7);
        assert_eq!(tiles.cut(pixels.clone(), (3, 2), || vec![99; 3]), [&pixels[..], &[99; 3]].concat());
        let tiles = Tiles { side: 2, ..TILES };
        let grey: Vec<u8> = (0..8).flat_map(|number| [number; 3]).collect();
        let cut = tiles.cut(grey, (4, 2), || vec![50; 12]);
        let firsts: Vec<u8> = cut.into_iter().step_by(3).collect();
        assert_eq!(firsts, [0, 1, 4, 5, 2, 3, 6, 7, 50, 50, 50, 50]);
        assert_eq!(tiles.cut(vec![7; 12], (2, 2), || unreachable!("one square shows all")), [7; 12]);
    }
}
