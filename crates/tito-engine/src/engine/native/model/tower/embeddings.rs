//! Embeddings of images that were computed, as many as a bound allows.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use tito_images::{Grid, ImageIdentity, PreparedImage};

/// The memory of embeddings that are kept for later steps and other sequences.
const MOST_BYTES: usize = 256 << 20;

/// What a tower makes of an image.
#[derive(Debug, PartialEq)]
pub(in crate::engine::native::model) struct ImageRows {
    /// Numbers of a row.
    pub(super) width: usize,
    /// A row for each placeholder.
    pub(super) rows: Vec<f32>,
    /// Rows that are added after each of the first layers of the text.
    pub(super) deepstack: Vec<Vec<f32>>,
}

impl ImageRows {
    /// Some of its rows.
    pub(in crate::engine::native::model) fn rows(&self, rows: Range<usize>) -> &[f32] {
        &self.rows[rows.start * self.width..rows.end * self.width]
    }

    /// The same of what is added after a layer; `None` where nothing is.
    pub(in crate::engine::native::model) fn added(&self, layer: usize, rows: Range<usize>) -> Option<&[f32]> {
        Some(&self.deepstack.get(layer)?[rows.start * self.width..rows.end * self.width])
    }

    /// The same with those of the next part of its image.
    pub(super) fn extended(mut self, next: Self) -> Self {
        self.rows.extend(next.rows);
        for (rows, next) in self.deepstack.iter_mut().zip(next.deepstack) {
            rows.extend(next);
        }
        self
    }

    fn bytes(&self) -> usize {
        (self.rows.len() * (1 + self.deepstack.len())) * size_of::<f32>()
    }
}

/// Embeddings by image; what was used longest ago goes first. They are those of the present weights.
#[derive(Debug)]
pub(in crate::engine::native::model) struct Embeddings {
    kept: BTreeMap<Key, (u64, Arc<ImageRows>)>,
    bytes: usize,
    most: usize,
    /// Counts uses.
    now: u64,
}

/// An image, with what no two images of one identity should differ in.
type Key = (ImageIdentity, usize, usize);

fn key(image: &PreparedImage) -> Key {
    let Grid { rows, columns } = image.grid();
    (image.identity(), rows, columns)
}

impl Default for Embeddings {
    fn default() -> Self {
        Self { kept: BTreeMap::new(), bytes: 0, most: MOST_BYTES, now: 0 }
    }
}

impl Embeddings {
    /// Those of an image, which `make` makes unless they are here.
    pub(in crate::engine::native::model) fn of(
        &mut self,
        image: &PreparedImage,
        make: impl FnOnce() -> ImageRows,
    ) -> Arc<ImageRows> {
        self.now += 1;
        if let Some((used, rows)) = self.kept.get_mut(&key(image)) {
            *used = self.now;
            return Arc::clone(rows);
        }
        let rows = Arc::new(make());
        self.bytes += rows.bytes();
        self.kept.insert(key(image), (self.now, Arc::clone(&rows)));
        // The latest stays in any case: the rest of its prompt needs it next.
        while self.bytes > self.most && self.kept.len() > 1 {
            self.drop_oldest();
        }
        rows
    }

    fn drop_oldest(&mut self) {
        let oldest = self.kept.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| *key);
        if let Some((_, rows)) = oldest.and_then(|key| self.kept.remove(&key)) {
            self.bytes -= rows.bytes();
        }
    }

    /// Of how many images they are.
    #[cfg(test)]
    pub(in crate::engine::native::model) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Forgets all: the weights are others.
    pub(in crate::engine::native::model) fn clear(&mut self) {
        self.kept.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use tito_images::{Layout, Normalisation, PatchShape};

    use super::*;

    fn image(number: u8) -> PreparedImage {
        let shape = PatchShape { side: 1, merge: 1, frames: 1, layout: Layout::Plain };
        let normalisation = Normalisation { mean: [0.5; 3], std: [0.5; 3] };
        let identity = ImageIdentity::of(&[number], &[]);
        PreparedImage::new(identity, Grid { rows: 1, columns: 1 }, shape, normalisation, vec![number; 3].into())
    }

    #[test]
    fn as_many_are_kept_as_there_is_room_for_and_the_latest_ones() {
        let mut embeddings = Embeddings { most: 100, ..Embeddings::default() };
        let make = |value: f32| move || ImageRows { width: 10, rows: vec![value; 10], deepstack: Vec::new() };
        let never = || unreachable!("it is kept");
        embeddings.of(&image(1), make(1.0));
        embeddings.of(&image(2), make(2.0));
        assert_eq!(embeddings.of(&image(1), never).rows(0..1), [1.0; 10]);
        embeddings.of(&image(3), make(3.0));
        assert_eq!((embeddings.kept.len(), embeddings.bytes), (2, 80));
        embeddings.of(&image(1), never);
        assert_eq!(embeddings.of(&image(2), make(4.0)).rows(0..1), [4.0; 10]);
        let large = || ImageRows { width: 10, rows: vec![0.0; 100], deepstack: vec![vec![1.0; 100]] };
        embeddings.of(&image(4), large);
        assert_eq!((embeddings.kept.len(), embeddings.bytes), (1, 800));
        assert_eq!(embeddings.of(&image(4), never).added(0, 3..5), Some(&[1.0; 20][..]));
        embeddings.clear();
        assert_eq!((embeddings.kept.len(), embeddings.bytes), (0, 0));
    }
}
