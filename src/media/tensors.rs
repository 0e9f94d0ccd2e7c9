//! Images as the tensors that vLLM's render gives and its generate takes.

use std::ops::Range;

use super::{Hold, MediaError, MediaReader, mm_kwargs};
use crate::images::{ImageIdentity, ImageTensor, PreparedImage};

/// While the tensors of an image are written, they are in memory as numbers, as bytes, as an item, and twice as text.
const COPIES: u64 = 6;

/// An image of a request in ids.
#[derive(Debug, Clone)]
pub struct SentImage {
    /// What the request calls it, if an image could be called so here.
    pub named: Option<ImageIdentity>,
    /// Where it is in the ids.
    pub placeholders: Range<usize>,
    /// Its tensors; without, it has to be known.
    pub tensors: Option<String>,
    /// Those of its tensors that count, once more.
    pub metadata: Option<String>,
}

/// The tensors of an image, each in an item of vLLM's as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageTexts {
    /// All of them.
    pub tensors: String,
    /// Those that count.
    pub metadata: Option<String>,
}

impl MediaReader {
    /// Holds memory for the tensors of images, for as long as they are written.
    ///
    /// # Errors
    ///
    /// If there is too little, now or at all.
    pub fn hold_tensors<'i>(&self, images: impl IntoIterator<Item = &'i PreparedImage>) -> Result<Hold, MediaError> {
        let bytes: u64 = images.into_iter().map(|image| self.processor.tensor_bytes(image)).sum();
        self.held.hold_bytes(bytes.saturating_mul(COPIES))
    }

    /// Writes the tensors of an image. Blocks for as long as that takes.
    pub fn tensors(&self, image: &PreparedImage) -> ImageTexts {
        let (tensors, counts) = (self.processor.tensors(image), self.processor.counts(image));
        let metadata = counts.map(|counts| mm_kwargs::encode([&counts].into_iter()));
        ImageTexts { tensors: mm_kwargs::encode(tensors.iter()), metadata }
    }

    /// The image that a request has as tensors, or names. Blocks for as long as reading takes.
    ///
    /// Tensors decide what the image is, and not its name: whoever calls an image as another one is called gets what they sent.
    ///
    /// # Errors
    ///
    /// If the tensors are none of this model's, or if the name is not that of an image that is kept.
    pub fn sent(&self, sent: &SentImage) -> Result<PreparedImage, MediaError> {
        let read = |text: &Option<String>| text.as_deref().map(mm_kwargs::decode).transpose();
        let (tensors, metadata) = (read(&sent.tensors)?, read(&sent.metadata)?.unwrap_or_default());
        let kept = sent.named.and_then(|identity| self.known(identity));
        let Some(mut tensors) = tensors else {
            let image = kept.ok_or(MediaError::UnknownImage)?;
            let counts = self.processor.counts(&image);
            return match metadata.into_iter().find(|tensor| counts.as_ref() != Some(tensor)) {
                Some(other) => Err(MediaError::OtherCounts { name: other.name }),
                None => Ok(image),
            };
        };
        // In vLLM, metadata stand in the place of tensors of their name. Here both are read, so that they have to be the same.
        for tensor in metadata {
            match tensors.iter().find(|other| other.name == tensor.name) {
                Some(other) if *other != tensor => return Err(MediaError::TwoCounts { name: tensor.name }),
                Some(_) => {}
                None => tensors.push(tensor),
            }
        }
        self.of_tensors(&tensors, kept)
    }

    fn of_tensors(&self, tensors: &[ImageTensor], kept: Option<PreparedImage>) -> Result<PreparedImage, MediaError> {
        let image = self.processor.prepare_tensors(tensors)?;
        if let Some(kept) = kept.filter(|kept| kept.shows_the_same_as(&image)) {
            return Ok(kept);
        }
        self.prepared.insert(image.identity(), image.clone());
        Ok(image)
    }
}
