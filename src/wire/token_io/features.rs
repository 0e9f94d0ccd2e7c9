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
    /// The tensors of each image; null for one that the server has read before.
    #[serde(default)]
    #[schema(required = false)]
    pub kwargs_data: Option<MmItems>,
    /// Those tensors of each image that say how many patches it has.
    #[serde(default)]
    #[schema(required = false)]
    pub mm_metadata: Option<MmItems>,
}

/// What identifies media, by kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MmHashes {
    /// That of each image, in hexadecimal digits.
    pub image: Vec<String>,
}

/// Tensors by kind, as texts: base64 of msgpack, as vLLM writes a `MultiModalKwargsItem`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MmItems {
    /// Those of each image, or null.
    pub image: Vec<Option<String>>,
}
