//! An image as a model's tower reads it.

use std::{fmt, sync::Arc};

use crate::identity::ImageIdentity;

/// The patches of an image, in rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Rows of patches.
    pub rows: usize,
    /// Columns of patches.
    pub columns: usize,
}

/// How pixels become patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatchShape {
    /// Pixels of a patch in each direction.
    pub side: usize,
    /// Patches in each direction that the tower joins to one placeholder. Patches come in the order of such blocks.
    pub merge: usize,
    /// How often the image stands in a patch one after the other, as if it were the frames of a video.
    pub frames: usize,
    /// How patches lie, and which ids of a prompt stand beside the placeholders.
    pub layout: Layout,
}

/// How the patches of an image lie, and which ids of a prompt show it besides its placeholders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// In one rectangle, with placeholders alone.
    Plain,
    /// In one rectangle, with one more id after each row of what the tower makes of it: a break, or the end.
    Rows,
    /// In squares, one below the other, each of which the tower reads by itself. One more id stands before all placeholders,
    /// and one after them.
    Tiles {
        /// The patches of a square in each direction.
        side: usize,
    },
}

/// How the numbers 0 to 255 of a pixel become those that a tower reads: `(x - 255 mean) / (255 std)`, by channel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalisation {
    /// The mean of each channel.
    pub mean: [f32; 3],
    /// The standard deviation of each channel.
    pub std: [f32; 3],
}

/// An image that was resized for a model. Patches are made when they are needed: as numbers, they are eight times larger.
#[derive(Clone)]
pub struct PreparedImage {
    identity: ImageIdentity,
    grid: Grid,
    shape: PatchShape,
    normalisation: Normalisation,
    /// Red, green and blue of each pixel, row by row.
    pixels: Arc<[u8]>,
    file: Option<Arc<[u8]>>,
}

impl Grid {
    /// How many patches there are.
    pub fn patches(self) -> usize {
        self.rows * self.columns
    }
}

impl PatchShape {
    /// Numbers of a patch: channel by channel, frame by frame, row by row.
    pub fn numbers(self) -> usize {
        3 * self.frames * self.side * self.side
    }
}

impl PreparedImage {
    /// An image of `pixels`, whose sides are those of the grid times those of a patch.
    ///
    /// # Panics
    ///
    /// If there are more pixels or fewer, or if the grid cannot be joined as `shape` says.
    pub fn new(
        identity: ImageIdentity,
        grid: Grid,
        shape: PatchShape,
        normalisation: Normalisation,
        pixels: Arc<[u8]>,
    ) -> Self {
        assert_eq!(pixels.len(), 3 * grid.patches() * shape.side * shape.side, "pixels of {grid:?}");
        assert!(grid.rows.is_multiple_of(shape.merge) && grid.columns.is_multiple_of(shape.merge), "{grid:?}");
        if let Layout::Tiles { side } = shape.layout {
            assert!(side.is_multiple_of(shape.merge) && grid.columns == side, "{grid:?} in squares of {side}");
            assert!(grid.rows.is_multiple_of(side), "{grid:?} in squares of {side}");
        }
        Self { identity, grid, shape, normalisation, pixels, file: None }
    }

    /// The same image, which keeps the file that it was made of, for whoever has to prepare it again.
    #[must_use]
    pub fn with_file(self, file: Arc<[u8]>) -> Self {
        Self { file: Some(file), ..self }
    }

    /// The file that it was made of, where it is kept.
    pub fn file(&self) -> Option<&Arc<[u8]>> {
        self.file.as_ref()
    }

    /// What tells it from other images.
    pub fn identity(&self) -> ImageIdentity {
        self.identity
    }

    /// Its patches.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// How its pixels become patches.
    pub fn shape(&self) -> PatchShape {
        self.shape
    }

    /// Rows and columns of what the tower makes of it, which has a position each.
    pub fn joined(&self) -> Grid {
        Grid { rows: self.grid.rows / self.shape.merge, columns: self.grid.columns / self.shape.merge }
    }

    /// Red, green and blue of each pixel, row by row.
    pub(crate) fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// Whether a tower sees the same in both, whatever files they were made of.
    pub fn shows_the_same_as(&self, other: &Self) -> bool {
        let Self { identity: _, grid, shape, normalisation, pixels, file: _ } = self;
        let same_numbers = *shape == other.shape && *normalisation == other.normalisation;
        *grid == other.grid && same_numbers && *pixels == other.pixels
    }

    /// The memory that its pixels take up, and its file where that is kept, in bytes.
    pub fn bytes(&self) -> usize {
        self.pixels.len() + self.file.as_ref().map_or(0, |file| file.len())
    }

    /// The patches that the tower reads at once: all of them, or those of one square.
    pub fn read_at_once(&self) -> Grid {
        match self.shape.layout {
            Layout::Tiles { side } => Grid { rows: side, columns: side },
            Layout::Plain | Layout::Rows => self.grid,
        }
    }

    /// How many ids stand for it in a prompt: a placeholder for each embedding, and what stands beside them.
    pub fn placeholders(&self) -> usize {
        let Grid { rows, columns } = self.joined();
        match self.shape.layout {
            Layout::Plain => rows * columns,
            Layout::Rows => rows * (columns + 1),
            Layout::Tiles { .. } => 1 + rows * columns + 1,
        }
    }

    /// Which of what the tower makes of it is at this place among its ids; `None` for what is no placeholder.
    pub fn embedding_at(&self, place: usize) -> Option<usize> {
        let Grid { rows, columns } = self.joined();
        let embedding = match self.shape.layout {
            Layout::Plain => place,
            Layout::Rows => {
                let (row, column) = (place / (columns + 1), place % (columns + 1));
                (column < columns).then(|| row * columns + column)?
            }
            Layout::Tiles { .. } => place.checked_sub(1)?,
        };
        (embedding < rows * columns).then_some(embedding)
    }

    /// The numbers of all patches, `[patches, numbers of a patch]`, block by block, as `pixel_values` of transformers'
    /// `Qwen2VLImageProcessor`.
    pub fn patches(&self) -> Vec<f32> {
        let PatchShape { side, merge, frames, .. } = self.shape;
        let width = self.grid.columns * side;
        let values = self.normalisation.values();
        let mut patches = Vec::with_capacity(self.grid.patches() * self.shape.numbers());
        for (block_row, block_column) in places(self.joined()) {
            for (row, column) in places(Grid { rows: merge, columns: merge }) {
                let (top, left) = ((block_row * merge + row) * side, (block_column * merge + column) * side);
                for (channel, values) in values.iter().enumerate() {
                    let first = patches.len();
                    for y in top..top + side {
                        let pixels = self.pixels[3 * (y * width + left)..][..3 * side].as_chunks::<3>().0;
                        patches.extend(pixels.iter().map(|pixel| values[usize::from(pixel[channel])]));
                    }
                    for _ in 1..frames {
                        patches.extend_from_within(first..first + side * side);
                    }
                }
            }
        }
        patches
    }
}

fn places(grid: Grid) -> impl Iterator<Item = (usize, usize)> {
    (0..grid.rows).flat_map(move |row| (0..grid.columns).map(move |column| (row, column)))
}

impl Normalisation {
    /// What each byte becomes, by channel.
    pub(crate) fn values(self) -> [[f32; 256]; 3] {
        std::array::from_fn(|channel| {
            let mut bytes = 0..=u8::MAX;
            std::array::from_fn(|_| self.apply(channel, bytes.next().unwrap_or(u8::MAX)))
        })
    }

    pub(crate) fn apply(self, channel: usize, value: u8) -> f32 {
        (f32::from(value) - 255.0 * self.mean[channel]) / (255.0 * self.std[channel])
    }
}

/// Without the pixels.
impl fmt::Debug for PreparedImage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { identity, grid, .. } = self;
        formatter.debug_struct("PreparedImage").field("identity", identity).field("grid", grid).finish_non_exhaustive()
    }
}
