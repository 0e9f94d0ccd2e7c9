//! Where images are in a prompt, as vLLM 0.33 tells it (`scale_out/token_in_token_out/protocol.py`, `PlaceholderRangeInfo`).

use std::ops::Range;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The placeholders of media in a prompt, by kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MmPlaceholders {
    /// Those of each image, in the order of the prompt.
    pub image: Vec<PlaceholderRange>,
}

/// The placeholders of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PlaceholderRange {
    /// The position of the first one.
    pub offset: usize,
    /// How many there are.
    pub length: usize,
}

impl PlaceholderRange {
    /// The positions.
    pub(crate) fn range(self) -> Range<usize> {
        self.offset..self.offset.saturating_add(self.length)
    }
}

impl MmPlaceholders {
    /// The placeholders of a prompt; `None` where it has no images.
    pub(crate) fn of(images: impl IntoIterator<Item = Range<usize>>) -> Option<Self> {
        let ranges = images.into_iter().map(|range| PlaceholderRange { offset: range.start, length: range.len() });
        let image: Vec<_> = ranges.collect();
        (!image.is_empty()).then_some(Self { image })
    }
}
