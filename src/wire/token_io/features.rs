//! The images of a prompt in ids, as vLLM 0.33 has them (`scale_out/token_in_token_out/protocol.py`, `MultiModalFeatures`).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::wire::answer::mm_placeholders::MmPlaceholders;

/// The images of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Features {
    /// What identifies each image.
    pub mm_hashes: MmHashes,
    /// Where each image is.
    pub mm_placeholders: MmPlaceholders,
    /// Always null: this server keeps what it read, and takes no tensors.
    #[serde(default)]
    #[schema(required = false, value_type = Option<Object>)]
    pub kwargs_data: Option<Tensors>,
    /// Always null.
    #[serde(default)]
    #[schema(required = false, value_type = Option<Object>)]
    pub mm_metadata: Option<Tensors>,
}

/// What identifies media, by kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MmHashes {
    /// That of each image, in hexadecimal digits.
    pub image: Vec<String>,
}

/// Tensors by kind, of which there is none here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tensors {
    /// A null for each image.
    pub image: Vec<Option<String>>,
}

impl Features {
    /// Whether there are tensors among them.
    pub(crate) fn has_tensors(&self) -> bool {
        let tensors = self.kwargs_data.iter().chain(&self.mm_metadata);
        tensors.flat_map(|tensors| &tensors.image).any(Option::is_some)
    }
}
