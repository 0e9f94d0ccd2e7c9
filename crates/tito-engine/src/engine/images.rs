//! Images within prompts.

use std::ops::Range;

use tito_images::PreparedImage;

use crate::TokenId;

/// An image of a prompt, whose placeholders are ids of the prompt.
#[derive(Debug, Clone)]
pub struct PromptImage {
    /// The position of its first placeholder. As many follow as [`PreparedImage::placeholders`] says, all the same id.
    pub offset: usize,
    /// The image.
    pub image: PreparedImage,
}

impl PromptImage {
    /// The positions of its placeholders.
    pub fn placeholders(&self) -> Range<usize> {
        self.offset..self.offset + self.image.placeholders()
    }
}

/// How an engine reads images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageReading {
    /// The id that stands for a part of an image.
    pub placeholder: TokenId,
}
