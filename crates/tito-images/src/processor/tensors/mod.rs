//! From an image to the tensors that transformers' processor gives for it, and back.

use std::sync::Arc;

use super::{ImageProcessor, sizes::Sizes};
use crate::{
    identity::ImageIdentity,
    prepared::{Grid, Normalisation, PatchShape, PreparedImage},
    tensors::{ImageTensor, PIXEL_VALUES, TensorError, TensorType},
};

/// Frames, rows and columns of patches, for the families of Qwen and GLM.
const GRID: &str = "image_grid_thw";
/// How many squares there are: a name of Gemma 3, and one of `InternVL`.
const NUM_PATCHES: &str = "num_patches";
const IMAGE_NUM_PATCHES: &str = "image_num_patches";

impl ImageProcessor {
    /// The tensors of an image: `pixel_values` in float32, and what counts them. Names and shapes are those of one image in
    /// vLLM 0.33 (`_get_mm_fields_config` of its models):
    ///
    /// | family | `pixel_values` | besides |
    /// |---|---|---|
    /// | Qwen, GLM | `[patches, numbers of a patch]` | `image_grid_thw` `[3]` |
    /// | Gemma 3 | `[1, 3, side, side]` | `num_patches` `[]` |
    /// | Mistral 3 | `[3, height, width]` | |
    /// | InternVL | `[squares, 3, side, side]` | `image_num_patches` `[]` |
    pub fn tensors(&self, image: &PreparedImage) -> Vec<ImageTensor> {
        let Grid { rows, columns } = image.grid();
        let (width, height) = (columns * self.shape.side, rows * self.shape.side);
        let pixels = match self.sizes {
            Sizes::Smart(_) => {
                let shape = vec![image.grid().patches(), self.shape.numbers()];
                ImageTensor::of_pixels(shape, &image.patches())
            }
            Sizes::LongestEdge(_) => ImageTensor::of_pixels(vec![3, height, width], &self.planes(image, height)),
            Sizes::Square(_) | Sizes::Tiles(_) => {
                ImageTensor::of_pixels(vec![height / width, 3, width, width], &self.planes(image, width))
            }
        };
        std::iter::once(pixels).chain(self.counts(image)).collect()
    }

    /// The tensor that counts the patches or the squares of an image, where a family has one.
    pub fn counts(&self, image: &PreparedImage) -> Option<ImageTensor> {
        let Grid { rows, columns } = image.grid();
        match self.sizes {
            Sizes::Smart(_) => Some(ImageTensor::of_counts(GRID, vec![3], &[1, rows, columns])),
            Sizes::Square(_) => Some(ImageTensor::of_counts(NUM_PATCHES, vec![], &[1])),
            Sizes::LongestEdge(_) => None,
            Sizes::Tiles(_) => Some(ImageTensor::of_counts(IMAGE_NUM_PATCHES, vec![], &[rows / columns])),
        }
    }

    /// The bytes that the tensors of an image take up, but for those that count.
    pub fn tensor_bytes(&self, image: &PreparedImage) -> u64 {
        (image.grid().patches() * self.shape.numbers() * size_of::<f32>()) as u64
    }

    /// The image that these tensors show, as [`tensors`](Self::tensors) gives them; pixels may also be uint8, as they are before
    /// they are normalised. It is identified by its pixels, whatever file they came from.
    ///
    /// # Errors
    ///
    /// If the tensors are not those of an image that this processor could have prepared, each number exactly.
    pub fn prepare_tensors(&self, tensors: &[ImageTensor]) -> Result<PreparedImage, TensorError> {
        let named = |name: &'static str| tensors.iter().find(|tensor| tensor.name == name);
        let values = named(PIXEL_VALUES).ok_or(TensorError::Missing(PIXEL_VALUES))?;
        let counting = match self.sizes {
            Sizes::Smart(_) => Some(GRID),
            Sizes::Square(_) => Some(NUM_PATCHES),
            Sizes::LongestEdge(_) => None,
            Sizes::Tiles(_) => Some(IMAGE_NUM_PATCHES),
        };
        let known = [Some(PIXEL_VALUES), counting];
        if let Some(other) = tensors.iter().find(|tensor| !known.contains(&Some(&tensor.name))) {
            return Err(TensorError::Unknown(other.name.clone()));
        }
        let counts = counting.map(|name| Ok((name, named(name).ok_or(TensorError::Missing(name))?.counts(name)?)));
        let counts = counts.transpose()?;
        if !values.is_whole() {
            return Err(wrong_shape(values, format!("one that its {} bytes fill", values.bytes.len())));
        }
        let grid = self.grid_of_tensors(values, counts)?;
        self.check_grid(grid).map_err(|wanted| wrong_shape(values, wanted))?;
        let pixels = self.pixels(values, grid)?;
        let mut settings = b"pixels;".to_vec();
        settings.extend(self.settings());
        settings.extend([grid.rows, grid.columns].into_iter().flat_map(|size| (size as u64).to_le_bytes()));
        let identity = ImageIdentity::of(&pixels, &settings);
        Ok(PreparedImage::new(identity, grid, self.shape, self.normalisation, Arc::from(pixels)))
    }

    /// The patches that tensors say they have, whose pixels fill their shape.
    fn grid_of_tensors(
        &self,
        values: &ImageTensor,
        counts: Option<(&'static str, Vec<i64>)>,
    ) -> Result<Grid, TensorError> {
        let PatchShape { side, .. } = self.shape;
        let (name, counts) = counts.unwrap_or((PIXEL_VALUES, Vec::new()));
        let is = |expected: &[usize]| {
            let same =
                counts.iter().map(|&count| usize::try_from(count).ok()).eq(expected.iter().map(|&count| Some(count)));
            let numbers = |wanted| TensorError::Numbers { name, found: counts.clone(), wanted };
            same.then_some(()).ok_or_else(|| numbers(format!("{expected:?}")))
        };
        match (self.sizes, values.shape.as_slice()) {
            (Sizes::Smart(_), &[patches, numbers]) if numbers == self.shape.numbers() => {
                let grid = <[i64; 3]>::try_from(counts.as_slice()).ok().and_then(|[frames, rows, columns]| {
                    let (rows, columns) = (usize::try_from(rows).ok()?, usize::try_from(columns).ok()?);
                    (frames == 1 && rows.checked_mul(columns) == Some(patches)).then_some(Grid { rows, columns })
                });
                let wanted = || format!("one frame of rows and columns that make {patches} patches");
                grid.ok_or_else(|| TensorError::Numbers { name, found: counts.clone(), wanted: wanted() })
            }
            (Sizes::Smart(_), _) => Err(wrong_shape(values, format!("[patches, {}]", self.shape.numbers()))),
            (Sizes::Square(edge), shape) if *shape == [1, 3, edge as usize, edge as usize] => {
                is(&[1])?;
                Ok(Grid { rows: edge as usize / side, columns: edge as usize / side })
            }
            (Sizes::Square(edge), _) => Err(wrong_shape(values, format!("[1, 3, {edge}, {edge}]"))),
            (Sizes::LongestEdge(_), &[3, height, width])
                if height.is_multiple_of(side) && width.is_multiple_of(side) =>
            {
                Ok(Grid { rows: height / side, columns: width / side })
            }
            (Sizes::LongestEdge(_), _) => {
                Err(wrong_shape(values, format!("[3, height, width], in multiples of {side},")))
            }
            (Sizes::Tiles(tiles), &[squares, 3, high, wide]) if [high, wide] == [tiles.side as usize; 2] => {
                is(&[squares])?;
                Ok(Grid { rows: squares * (wide / side), columns: wide / side })
            }
            (Sizes::Tiles(tiles), _) => Err(wrong_shape(values, format!("[squares, 3, {0}, {0}]", tiles.side))),
        }
    }

    /// Refuses patches that this processor makes of no image; the error says which it could make.
    fn check_grid(&self, grid: Grid) -> Result<(), String> {
        let Grid { rows, columns } = grid;
        let merge = self.shape.merge;
        if grid.patches() == 0 || !rows.is_multiple_of(merge) || !columns.is_multiple_of(merge) {
            return Err(format!("one of blocks of {merge} by {merge} patches"));
        }
        let longest = match self.sizes {
            Sizes::LongestEdge(sizes) => sizes.edge.next_multiple_of(sizes.factor) as usize / self.shape.side,
            Sizes::Smart(_) | Sizes::Square(_) | Sizes::Tiles(_) => usize::MAX,
        };
        let most = self.most_patches();
        if grid.patches() > most || rows.max(columns) > longest {
            return Err(format!("at most {most} patches, as the settings of this server's processor allow,"));
        }
        self.check_least(grid)
    }

    /// The same of too few of them.
    fn check_least(&self, grid: Grid) -> Result<(), String> {
        let pixels = (grid.patches() * self.shape.side * self.shape.side) as u64;
        match self.sizes {
            Sizes::Smart(sizes) if pixels < sizes.fewest_pixels() => Err(format!(
                "at least {} pixels, as the settings of this server's processor ask for,",
                sizes.fewest_pixels()
            )),
            Sizes::Tiles(tiles)
                if !u32::try_from(grid.rows / grid.columns).is_ok_and(|squares| tiles.makes(squares)) =>
            {
                Err(format!(
                    "a number of squares that an image becomes with {} to {} of them, and one more for the whole,",
                    tiles.fewest, tiles.most
                ))
            }
            Sizes::Smart(_) | Sizes::Square(_) | Sizes::LongestEdge(_) | Sizes::Tiles(_) => Ok(()),
        }
    }

    /// Pixels as numbers, colour by colour, for each part of so many rows.
    fn planes(&self, image: &PreparedImage, rows: usize) -> Vec<f32> {
        let width = image.grid().columns * self.shape.side;
        let parts = image.pixels().chunks_exact(3 * rows * width);
        let planes = parts.flat_map(|part| (0..3).map(move |channel| (channel, part)));
        let number = |channel, pixel: &[u8]| self.normalisation.apply(channel, pixel[channel]);
        planes.flat_map(|(channel, part)| part.chunks_exact(3).map(move |pixel| number(channel, pixel))).collect()
    }

    /// Red, green and blue of each pixel, row by row, of `pixel_values` that have this grid.
    fn pixels(&self, values: &ImageTensor, grid: Grid) -> Result<Vec<u8>, TensorError> {
        let levels = Levels::of(self.normalisation, values)?;
        let mut pixels = vec![0; 3 * grid.patches() * self.shape.side * self.shape.side];
        let width = grid.columns * self.shape.side;
        if let Sizes::Smart(_) = self.sizes {
            self.fill_from_patches(&mut pixels, grid, &levels)?;
            return Ok(pixels);
        }
        let rows = match self.sizes {
            Sizes::LongestEdge(_) => grid.rows * self.shape.side,
            Sizes::Smart(_) | Sizes::Square(_) | Sizes::Tiles(_) => width,
        };
        let plane = rows * width;
        for (part, pixels) in pixels.chunks_exact_mut(3 * plane).enumerate() {
            for (place, pixel) in pixels.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                for (channel, value) in pixel.iter_mut().enumerate() {
                    *value = levels.pixel(channel, (3 * part + channel) * plane + place)?;
                }
            }
        }
        Ok(pixels)
    }

    /// The same from patches in the order of blocks, each frame of which has to show the same.
    fn fill_from_patches(&self, pixels: &mut [u8], grid: Grid, levels: &Levels<'_>) -> Result<(), TensorError> {
        let PatchShape { side, merge, frames, .. } = self.shape;
        let (width, numbers, plane) = (grid.columns * side, self.shape.numbers(), side * side);
        for patch in 0..grid.patches() {
            let (block, within) = (patch / (merge * merge), patch % (merge * merge));
            let blocks = grid.columns / merge;
            let (row, column) = (block / blocks * merge + within / merge, block % blocks * merge + within % merge);
            for channel in 0..3 {
                let first = patch * numbers + channel * frames * plane;
                for place in 0..plane {
                    let value = levels.pixel(channel, first + place)?;
                    for frame in 1..frames {
                        if levels.pixel(channel, first + frame * plane + place)? != value {
                            return Err(TensorError::Frames);
                        }
                    }
                    let (y, x) = (row * side + place / side, column * side + place % side);
                    pixels[3 * (y * width + x) + channel] = value;
                }
            }
        }
        Ok(())
    }
}

fn wrong_shape(values: &ImageTensor, wanted: String) -> TensorError {
    TensorError::Shape { name: PIXEL_VALUES, shape: values.shape.clone(), wanted }
}

/// The pixels that numbers were.
enum Levels<'v> {
    /// They are pixels.
    Pixels(&'v [u8]),
    /// They were normalised.
    Numbers { values: &'v [[u8; 4]], normalisation: Normalisation, of: Box<[[f32; 256]; 3]> },
}

impl<'v> Levels<'v> {
    fn of(normalisation: Normalisation, values: &'v ImageTensor) -> Result<Self, TensorError> {
        match values.kind {
            TensorType::Uint8 => Ok(Self::Pixels(&values.bytes)),
            TensorType::Float32 => Ok(Self::Numbers {
                values: values.bytes.as_chunks().0,
                normalisation,
                of: Box::new(normalisation.values()),
            }),
            TensorType::Int64 => {
                let wanted = "of float32, or of uint8: numbers of other types do not tell all pixels apart";
                Err(TensorError::Type { name: PIXEL_VALUES, wanted })
            }
        }
    }

    /// The pixel of the number at this place.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::float_cmp,
        reason = "a number is taken only if it is to the bit what this pixel becomes"
    )]
    fn pixel(&self, channel: usize, index: usize) -> Result<u8, TensorError> {
        let (values, normalisation, of) = match self {
            Self::Pixels(values) => return Ok(values[index]),
            Self::Numbers { values, normalisation, of } => (values, normalisation, of),
        };
        let number = f32::from_le_bytes(values[index]);
        let Normalisation { mean, std } = normalisation;
        let pixel = (number * (255.0 * std[channel]) + 255.0 * mean[channel] + 0.5) as u8;
        if of[channel][usize::from(pixel)] == number {
            Ok(pixel)
        } else {
            Err(TensorError::NoPixel { index, value: number.to_string() })
        }
    }
}

#[cfg(test)]
mod tests;
