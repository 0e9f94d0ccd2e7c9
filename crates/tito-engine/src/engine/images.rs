//! Images within prompts.

use std::ops::Range;

use tito_images::{Layout, PreparedImage};

use super::EngineError;
use crate::TokenId;

/// An image of a prompt, whose placeholders are ids of the prompt.
#[derive(Debug, Clone)]
pub struct PromptImage {
    /// The position of the first id that shows it. As many ids follow as [`PreparedImage::placeholders`] says, all the same one
    /// but for what stands beside placeholders, where an image has that.
    pub offset: usize,
    /// The image.
    pub image: PreparedImage,
}

impl PromptImage {
    /// The positions of its placeholders, with what stands beside them.
    pub fn placeholders(&self) -> Range<usize> {
        self.offset..self.offset + self.image.placeholders()
    }
}

/// How an engine reads images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageReading {
    /// The id that stands for a part of an image.
    pub placeholder: TokenId,
    /// What else shows an image.
    pub frame: ImageFrame,
}

/// What shows an image in a prompt besides its placeholders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFrame {
    /// An id before them and one after them, by their keys in config.json. Chat templates write all of it.
    Marks([&'static str; 2]),
    /// The same, with the ids of a config that lacks the keys. Chat templates write the first one alone.
    Opening([(&'static str, TokenId); 2]),
    /// A token after each row of them, one after all rows but the last and another one after that, by their texts. Chat
    /// templates write one placeholder.
    Rows([&'static str; 2]),
    /// A token before them and one after them, by their texts, which belong to the image. Chat templates write one placeholder.
    Around([&'static str; 2]),
}

impl ImageFrame {
    /// The marks of Qwen.
    pub const VISION: Self = Self::Marks(["vision_start_token_id", "vision_end_token_id"]);
}

/// Refuses images that are not where the prompt says.
pub(super) fn check(images: &[PromptImage], prompt: &[TokenId], placeholder: TokenId) -> Result<(), EngineError> {
    let unsupported = |reason: String| Err(EngineError::Unsupported(reason));
    let mut end = 0;
    for (number, PromptImage { offset, image }) in images.iter().enumerate() {
        let count = image.placeholders();
        if image.joined().patches() == 0 {
            return unsupported(format!("image {number} of the prompt has no patches"));
        }
        if *offset < end {
            return unsupported(format!(
                "image {number} of the prompt begins at token {offset}, before the end of the one before it at {end}"
            ));
        }
        end = offset.saturating_add(count);
        let Some(tokens) = prompt.get(*offset..end) else {
            return unsupported(format!(
                "image {number} of the prompt is at tokens {offset} to {end}, and the prompt has {}",
                prompt.len()
            ));
        };
        for (place, id) in tokens.iter().enumerate() {
            let instead = match (image.embedding_at(place), *id == placeholder) {
                (Some(_), false) => format!("its placeholder {placeholder}"),
                (None, true) => match image.shape().layout {
                    Layout::Tiles { .. } => "a mark of the image".to_owned(),
                    Layout::Plain | Layout::Rows => "the end of a row".to_owned(),
                },
                _ => continue,
            };
            return unsupported(format!(
                "image {number} of the prompt is at tokens {offset} to {end}, and token {} is {id} rather than {instead}",
                offset + place
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use tito_images::{Grid, ImageIdentity, Normalisation, PatchShape};

    use super::*;

    /// An image of `rows` by `columns` placeholders, as `record_image_models.py` makes it.
    pub(in crate::engine) fn made(seed: u8, rows: usize, columns: usize, shape: PatchShape) -> PreparedImage {
        let normalisation = Normalisation { mean: [0.5; 3], std: [0.5; 3] };
        let grid = Grid { rows: shape.merge * rows, columns: shape.merge * columns };
        let pixel = |place: usize| u8::try_from((place * 37 + place / 5 * 11 + usize::from(seed) * 71) % 256).unwrap();
        let pixels: Vec<u8> = (0..3 * grid.patches() * shape.side * shape.side).map(pixel).collect();
        PreparedImage::new(ImageIdentity::of(&[seed], &[]), grid, shape, normalisation, pixels.into())
    }

    /// An image of four patches of one pixel for each placeholder.
    pub(in crate::engine) fn image(seed: u8, rows: usize, columns: usize) -> PreparedImage {
        made(seed, rows, columns, PatchShape { side: 1, merge: 2, frames: 2, layout: Layout::Plain })
    }

    /// The same with an end after each row.
    pub(in crate::engine) fn in_rows(offset: usize, rows: usize, columns: usize) -> PromptImage {
        let shape = PatchShape { side: 1, merge: 2, frames: 1, layout: Layout::Rows };
        PromptImage { offset, image: made(1, rows, columns, shape) }
    }

    /// So many squares, each of one embedding.
    pub(in crate::engine) fn in_squares(offset: usize, count: usize) -> PromptImage {
        let shape = PatchShape { side: 1, merge: 2, frames: 1, layout: Layout::Tiles { side: 2 } };
        PromptImage { offset, image: made(1, count, 1, shape) }
    }

    pub(in crate::engine) fn at(offset: usize, rows: usize, columns: usize) -> PromptImage {
        PromptImage { offset, image: image(1, rows, columns) }
    }

    #[test]
    fn images_that_are_not_where_the_prompt_says_are_refused() {
        let prompt = [1, 9, 9, 2, 9, 9, 3];
        let error = |images: &[PromptImage]| check(images, &prompt, 9).unwrap_err().to_string();
        assert_eq!(check(&[at(1, 1, 2), at(4, 2, 1)], &prompt, 9), Ok(()));
        // A placeholder that belongs to no image is an ordinary token.
        assert_eq!(check(&[at(4, 1, 1)], &prompt, 9), Ok(()));
        assert!(error(&[at(4, 1, 2), at(1, 1, 2)]).contains("before the end of the one before it at 6"));
        assert!(error(&[at(1, 1, 2), at(2, 1, 1)]).contains("before the end"));
        assert!(error(&[at(5, 1, 2)]).contains("token 6 is 3 rather than its placeholder 9"));
        assert!(error(&[at(6, 1, 2)]).contains("at tokens 6 to 8, and the prompt has 7"));
        assert!(error(&[at(usize::MAX, 1, 2)]).contains("the prompt has 7"));
    }

    #[test]
    fn ends_of_rows_are_any_ids_but_the_placeholder() {
        let prompt = [1, 9, 9, 2, 9, 9, 3, 9];
        let error = |images: &[PromptImage]| check(images, &prompt, 9).unwrap_err().to_string();
        assert_eq!(check(&[in_rows(1, 2, 2)], &prompt, 9), Ok(()));
        assert_eq!(check(&[in_rows(2, 1, 1), in_rows(5, 1, 1)], &prompt, 9), Ok(()));
        assert!(error(&[in_rows(1, 1, 1)]).contains("token 2 is 9 rather than the end of a row"));
        assert!(error(&[in_rows(2, 1, 2)]).contains("token 3 is 2 rather than its placeholder 9"));
        assert!(error(&[in_rows(7, 1, 1)]).contains("at tokens 7 to 9, and the prompt has 8"));
    }
    #[test]
    fn marks_around_squares_are_any_ids_but_the_placeholder() {
        let prompt = [1, 7, 9, 9, 8, 7, 9, 9];
        let error = |images: &[PromptImage]| check(images, &prompt, 9).unwrap_err().to_string();
        assert_eq!(check(&[in_squares(1, 2)], &prompt, 9), Ok(()));
        assert!(error(&[in_squares(5, 1)]).contains("token 7 is 9 rather than a mark of the image"));
        assert!(error(&[in_squares(2, 1)]).contains("token 2 is 9 rather than a mark of the image"));
        assert!(error(&[in_squares(0, 1)]).contains("token 1 is 7 rather than its placeholder 9"));
        assert!(error(&[in_squares(6, 1)]).contains("at tokens 6 to 9, and the prompt has 8"));
    }
}
