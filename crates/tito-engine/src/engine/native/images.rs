//! The images of one sequence: where each is among its tokens, and what positions tokens have for that.
//!
//! Owns which tokens an image stands at, and what tells two sequences of the same ids apart. Refuses pixels, which are the
//! tower's.

use std::{ops::Range, sync::Arc};

use tito_images::{Grid, Layout, PreparedImage};

use crate::engine::PromptImage;

/// The images of a sequence, in its order.
#[derive(Debug)]
pub(crate) struct SequenceImages {
    images: Vec<PlacedImage>,
    /// Whether tokens of an image attend to all of it.
    both_ways: bool,
}

/// An image at its place.
#[derive(Debug)]
struct PlacedImage {
    /// Its placeholders, with what stands beside them.
    tokens: Range<usize>,
    /// The place in time of all of them, which is the row and the column of the first one too.
    position: usize,
    image: PreparedImage,
}

/// A part of an image.
#[derive(Debug)]
pub(crate) struct ImagePart<'a> {
    /// The whole image.
    pub(crate) image: &'a PreparedImage,
    /// The position of the first token in the sequence.
    pub(crate) first_token: usize,
    /// Which of its rows.
    pub(crate) rows: Range<usize>,
}

impl SequenceImages {
    /// The images of a prompt, which were checked; `None` if there are none. Each may be computed in parts.
    #[cfg(test)]
    pub(crate) fn of(images: &[PromptImage]) -> Option<Arc<Self>> {
        Self::attending(images, false)
    }

    /// The images of a prompt, which were checked; `None` if there are none. Where tokens of an image attend to all of it,
    /// `both_ways`, all of an image is computed in one step.
    pub(crate) fn attending(images: &[PromptImage], both_ways: bool) -> Option<Arc<Self>> {
        // How many tokens more there are before an image than positions.
        let mut surplus = 0;
        let placed = images.iter().map(|PromptImage { offset, image }| {
            let Grid { rows, columns } = image.joined();
            let position = offset - surplus;
            surplus += rows * columns - rows.max(columns);
            PlacedImage { tokens: *offset..offset + image.placeholders(), position, image: image.clone() }
        });
        let images: Vec<PlacedImage> = placed.collect();
        (!images.is_empty()).then(|| Arc::new(Self { images, both_ways }))
    }

    /// The tokens of the image that would be cut before the token at this index, and must not be.
    pub(crate) fn cut_at(&self, index: usize) -> Option<Range<usize>> {
        if !self.both_ways {
            return None;
        }
        let before = self.images.partition_point(|placed| placed.tokens.start < index);
        let placed = &self.images[before.checked_sub(1)?];
        (index < placed.tokens.end).then(|| placed.tokens.clone())
    }

    /// The images at these tokens, of which each token attends to all.
    ///
    /// # Panics
    ///
    /// If one of them is not there as a whole.
    pub(crate) fn both_ways_within(&self, tokens: Range<usize>) -> Vec<Range<usize>> {
        if !self.both_ways {
            return Vec::new();
        }
        let cut = [tokens.start, tokens.end].into_iter().find_map(|index| self.cut_at(index));
        assert_eq!(cut, None, "images are computed as a whole, and the step has {tokens:?}");
        let images = self.images.iter().map(|placed| placed.tokens.clone());
        images.filter(|image| tokens.start <= image.start && image.end <= tokens.end).collect()
    }

    /// The place in time, the row and the column of the token at this index, as `get_rope_index` of transformers has them: the
    /// same number outside of images, and what follows an image goes on after its greatest one.
    pub(crate) fn place(&self, index: usize) -> [usize; 3] {
        let before = self.images.partition_point(|placed| placed.tokens.start <= index);
        let Some(placed) = before.checked_sub(1).map(|number| &self.images[number]) else { return [index; 3] };
        let Grid { rows, columns } = placed.image.joined();
        if placed.tokens.contains(&index) {
            let within = index - placed.tokens.start;
            return [placed.position, placed.position + within / columns, placed.position + within % columns];
        }
        [placed.position + rows.max(columns) + index - placed.tokens.end; 3]
    }

    /// The parts of images that are at these tokens.
    pub(crate) fn within(&self, tokens: Range<usize>) -> impl Iterator<Item = ImagePart<'_>> {
        let first = self.images.partition_point(|placed| placed.tokens.end <= tokens.start);
        let overlapping = self.images[first..].iter().take_while(move |placed| placed.tokens.start < tokens.end);
        overlapping.flat_map(move |placed| {
            let first_token = tokens.start.max(placed.tokens.start);
            let end = tokens.end.min(placed.tokens.end);
            placed.parts(first_token - placed.tokens.start..end - placed.tokens.start)
        })
    }

    /// What a token stands for besides its id: the image and the place in it; `None` outside of images.
    pub(crate) fn mark(&self, index: usize) -> Option<([u8; 32], Grid, usize)> {
        let first = self.images.partition_point(|placed| placed.tokens.end <= index);
        let PlacedImage { tokens, image, .. } = self.images.get(first).filter(|placed| placed.tokens.start <= index)?;
        Some((*image.identity().as_bytes(), image.grid(), index - tokens.start))
    }
}

impl PlacedImage {
    /// What of the image is at these places among its tokens: one part, or one for each row where rows have ends. Whatever
    /// stands beside placeholders is a token as all others.
    fn parts(&self, places: Range<usize>) -> impl Iterator<Item = ImagePart<'_>> {
        let Grid { columns, .. } = self.image.joined();
        let all = self.tokens.len();
        let (before, run, row) = match self.image.shape().layout {
            Layout::Plain => (0, all, all),
            Layout::Rows => (0, columns, columns + 1),
            Layout::Tiles { .. } => (1, all - 2, all),
        };
        let rows = places.start / row..places.end.div_ceil(row);
        let parts = rows.map(move |number| {
            let first = number * row + before;
            places.start.max(first)..places.end.min(first + run)
        });
        parts.filter(|part| !part.is_empty()).map(move |part| {
            let rows = part.start / row * run + part.start % row - before;
            ImagePart { image: &self.image, first_token: self.tokens.start + part.start, rows: rows..rows + part.len() }
        })
    }
}

/// Two sequences have the same images if what is computed of them is the same.
impl PartialEq for SequenceImages {
    fn eq(&self, other: &Self) -> bool {
        let of = |images: &Self| -> Vec<_> {
            let key = |placed: &PlacedImage| (placed.tokens.clone(), placed.image.identity(), placed.image.grid());
            images.images.iter().map(key).collect()
        };
        of(self) == of(other)
    }
}

impl Eq for SequenceImages {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::images::tests::{at, in_rows, in_squares};

    #[test]
    fn tokens_of_images_have_their_rows_and_columns_and_text_goes_on_after_them() {
        assert!(SequenceImages::of(&[]).is_none());
        let images = SequenceImages::of(&[at(2, 2, 3), at(8, 2, 1), at(12, 1, 1)]).unwrap();
        let places: Vec<[usize; 3]> = (0..15).map(|index| images.place(index)).collect();
        let expected = [
            [0, 0, 0],
            [1, 1, 1],
            [2, 2, 2],
            [2, 2, 3],
            [2, 2, 4],
            [2, 3, 2],
            [2, 3, 3],
            [2, 3, 4],
            [5, 5, 5],
            [5, 6, 5],
            [7, 7, 7],
            [8, 8, 8],
            [9, 9, 9],
            [10, 10, 10],
            [11, 11, 11],
        ];
        assert_eq!(places, expected);
    }

    #[test]
    fn images_that_are_seen_both_ways_are_not_cut() {
        let prompt = [at(2, 2, 3), at(8, 2, 1), at(12, 1, 1)];
        let images = SequenceImages::attending(&prompt, true).unwrap();
        let cut: Vec<usize> = (0..16).filter(|index| images.cut_at(*index).is_some()).collect();
        assert_eq!(cut, [3, 4, 5, 6, 7, 9]);
        assert_eq!(images.cut_at(5), Some(2..8));
        assert_eq!(images.both_ways_within(0..100), [2..8, 8..10, 12..13]);
        assert_eq!(images.both_ways_within(8..14), [8..10, 12..13]);
        assert!(images.both_ways_within(10..12).is_empty());
        // Others may be cut anywhere.
        let images = SequenceImages::attending(&prompt, false).unwrap();
        assert!((0..16).all(|index| images.cut_at(index).is_none()));
        assert!(images.both_ways_within(3..9).is_empty());
    }

    #[test]
    #[should_panic(expected = "images are computed as a whole")]
    fn a_step_with_a_part_of_such_an_image_is_a_bug() {
        SequenceImages::attending(&[at(2, 2, 3)], true).unwrap().both_ways_within(0..5);
    }

    #[test]
    fn parts_are_those_of_images_at_these_tokens() {
        let images = SequenceImages::of(&[at(2, 2, 3), at(8, 2, 1)]).unwrap();
        let parts = |range: Range<usize>| -> Vec<(usize, Range<usize>)> {
            images.within(range).map(|part| (part.first_token, part.rows)).collect()
        };
        assert_eq!(parts(0..2), []);
        assert_eq!(parts(0..100), [(2, 0..6), (8, 0..2)]);
        assert_eq!(parts(4..9), [(4, 2..6), (8, 0..1)]);
        assert_eq!(parts(5..6), [(5, 3..4)]);
        assert_eq!(parts(10..11), []);
    }

    #[test]
    fn ends_of_rows_are_no_parts_but_belong_to_their_image() {
        let images = SequenceImages::of(&[in_rows(2, 2, 3), in_rows(10, 1, 1)]).unwrap();
        let parts = |range: Range<usize>| -> Vec<(usize, Range<usize>)> {
            images.within(range).map(|part| (part.first_token, part.rows)).collect()
        };
        assert_eq!(parts(0..100), [(2, 0..3), (6, 3..6), (10, 0..1)]);
        assert_eq!(parts(3..8), [(3, 1..3), (6, 3..5)]);
        assert_eq!(parts(4..6), [(4, 2..3)]);
        assert_eq!(parts(8..11), [(8, 5..6), (10, 0..1)]);
        assert!([0..2, 5..6, 9..10, 11..20].into_iter().all(|range| parts(range).is_empty()));
        let places: Vec<Option<usize>> = (0..13).map(|index| images.mark(index).map(|(.., place)| place)).collect();
        let none = |count| vec![None; count];
        let expected = [none(2), (0..8).map(Some).collect(), (0..2).map(Some).collect(), none(1)].concat();
        assert_eq!(places, expected);
    }
    #[test]
    fn what_stands_around_squares_is_no_part_but_belongs_to_the_image() {
        let images = SequenceImages::of(&[in_squares(2, 2), in_squares(8, 1)]).unwrap();
        let parts = |range: Range<usize>| -> Vec<(usize, Range<usize>)> {
            images.within(range).map(|part| (part.first_token, part.rows)).collect()
        };
        assert_eq!(parts(0..100), [(3, 0..2), (9, 0..1)]);
        assert_eq!(parts(4..9), [(4, 1..2)]);
        assert_eq!(parts(2..4), [(3, 0..1)]);
        assert!([0..3, 5..9, 10..20].into_iter().all(|range| parts(range).is_empty()));
        let places: Vec<Option<usize>> = (0..12).map(|index| images.mark(index).map(|(.., place)| place)).collect();
        let none = |count| vec![None; count];
        let expected = [none(2), (0..4).map(Some).collect(), none(2), (0..3).map(Some).collect(), none(1)].concat();
        assert_eq!(places, expected);
    }
}
