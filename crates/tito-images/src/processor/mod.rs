//! The arithmetic of a checkpoint's processor: from pixels to patches, as transformers' `Qwen2VLImageProcessor`,
//! `Gemma3ImageProcessor`, `PixtralImageProcessor`, `GotOcr2ImageProcessor`, `Glm4vImageProcessor` and `Glm46VImageProcessor`
//! (their torchvision backend, which vLLM uses too).

mod longest_edge;
mod settings;
mod sizes;
mod smart_resize;
mod tensors;
mod tiles;

use std::sync::Arc;

use serde_json::Value;

use crate::{
    decoded::DecodedImage,
    error::{ImageError, UnsupportedProcessor},
    identity::ImageIdentity,
    prepared::{Grid, Normalisation, PatchShape, PreparedImage},
    resize::{self, Filter, resize},
};
use settings::ProcessorSettings;
use sizes::Sizes;
use smart_resize::{SizeRules, SmartResize};

/// An image of so many pixels can be read whatever the settings are.
const LEAST_PIXELS: u64 = 1 << 20;

/// What a checkpoint does to the pixels of an image before its tower reads them.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageProcessor {
    sizes: Sizes,
    filter: Filter,
    shape: PatchShape,
    normalisation: Normalisation,
}

impl ImageProcessor {
    /// The processor that `preprocessor`, the content of `preprocessor_config.json`, describes for the model of `config`, the
    /// content of config.json.
    ///
    /// Known are the models of the types `qwen2_5_vl`, `qwen3_vl`, `qwen3_vl_moe`, `qwen3_5` and `qwen3_5_moe`,
    /// which share a processor, `glm4v`, `glm4v_moe` and `glm46v`, which do so too, `gemma3`, `mistral3` and `internvl`. Settings
    /// that are missing are those of transformers.
    ///
    /// # Errors
    ///
    /// If the model is of another type, or if a setting asks for what is not done here. The error names it.
    pub fn of_model(config: &Value, preprocessor: &Value) -> Result<Self, UnsupportedProcessor> {
        let ProcessorSettings { sizes, filter, shape, normalisation } = settings::read(config, preprocessor)?;
        Ok(Self { sizes, filter, shape, normalisation })
    }

    /// The patches of an image of `width` times `height` pixels (as a person sees it, after it was turned).
    ///
    /// # Errors
    ///
    /// If a side is zero, too long for the other one (more than 200 times as long for the processors of Qwen and GLM), or 128
    /// times as long as it would become.
    pub fn grid(&self, width: u32, height: u32) -> Result<Grid, ImageError> {
        let (wide, high) = self.size(width, height)?;
        let (columns, rows) = match self.sizes {
            Sizes::Tiles(tiles) => (tiles.side, tiles.side * tiles.count((wide, high))),
            Sizes::Smart(_) | Sizes::Square(_) | Sizes::LongestEdge(_) => (wide, high),
        };
        let side = self.shape.side;
        Ok(Grid { rows: rows as usize / side, columns: columns as usize / side })
    }

    /// The most patches that there is to be room for. Only an image of an extreme shape can have more of them, as its shorter
    /// side is one block in any case.
    pub fn most_patches(&self) -> usize {
        let pixels = match self.sizes {
            Sizes::Smart(_) => self.sizes.most_pixels().max(LEAST_PIXELS),
            Sizes::Square(_) | Sizes::LongestEdge(_) | Sizes::Tiles(_) => self.sizes.most_pixels(),
        };
        usize::try_from(pixels / (self.shape.side * self.shape.side) as u64).unwrap_or(usize::MAX)
    }

    /// What identifies the image of these encoded bytes for this processor, before it is decoded.
    pub fn identity(&self, encoded: &[u8]) -> ImageIdentity {
        ImageIdentity::of(encoded, &self.settings())
    }

    /// The image of the pixels `decoded` for the tower; `identity` is that of the bytes that it was decoded from.
    ///
    /// # Errors
    ///
    /// As [`grid`](Self::grid).
    pub fn prepare(&self, identity: ImageIdentity, decoded: &DecodedImage) -> Result<PreparedImage, ImageError> {
        let from = (decoded.width(), decoded.height());
        let to = self.size(from.0, from.1)?;
        let whole = resize(decoded.pixels(), from, to, self.filter);
        let pixels = match self.sizes {
            Sizes::Tiles(tiles) => {
                let side = tiles.side;
                tiles.cut(whole, to, || resize(decoded.pixels(), from, (side, side), self.filter))
            }
            Sizes::Smart(_) | Sizes::Square(_) | Sizes::LongestEdge(_) => whole,
        };
        let grid = self.grid(from.0, from.1)?;
        Ok(PreparedImage::new(identity, grid, self.shape, self.normalisation, Arc::from(pixels)))
    }

    /// Everything but the encoded bytes that decides the patches of an image.
    fn settings(&self) -> Vec<u8> {
        let PatchShape { side, merge, frames, .. } = self.shape;
        let patches = [side, merge, frames].map(|size| size as u64);
        let sizes = self.sizes.settings().into_iter().chain(patches);
        let numbers = self.normalisation.mean.iter().chain(&self.normalisation.std);
        let mut settings = match self.sizes {
            Sizes::Smart(SmartResize { rules: SizeRules::Qwen, .. }) => b"smart_resize, bicubic, on white;".to_vec(),
            Sizes::Smart(SmartResize { rules: SizeRules::Glm { .. }, .. }) => {
                b"smart_resize of GLM, bicubic, on white;".to_vec()
            }
            Sizes::Square(_) => b"square, bilinear, on white;".to_vec(),
            Sizes::LongestEdge(_) => b"longest_edge, bicubic, on white;".to_vec(),
            Sizes::Tiles(_) => b"tiles, bicubic, on white;".to_vec(),
        };
        settings.extend(sizes.flat_map(u64::to_le_bytes));
        settings.extend(numbers.flat_map(|number| number.to_le_bytes()));
        settings
    }

    /// The smallest size that an image gets which is to get the size `to`.
    fn smallest(&self, to: (u32, u32)) -> (u32, u32) {
        match self.sizes {
            // One square or more, and if there are more, a square of all.
            Sizes::Tiles(tiles) => (tiles.side, tiles.side),
            Sizes::Smart(_) | Sizes::Square(_) | Sizes::LongestEdge(_) => to,
        }
    }

    /// The size (width, height) that an image gets before it is cut.
    fn size(&self, width: u32, height: u32) -> Result<(u32, u32), ImageError> {
        if width == 0 || height == 0 {
            return Err(ImageError::NoPixels { width, height });
        }
        let (wide, high) = self.sizes.of(width, height)?;
        let too_many = || ImageError::TooManyPixels { width, height, limit: self.sizes.most_pixels() };
        let side = |side: u64| u32::try_from(side).map_err(|_| too_many());
        let to = (side(wide)?, side(high)?);
        resize::check((width, height), self.smallest(to))?;
        Ok(to)
    }
}

#[cfg(test)]
mod tests;
