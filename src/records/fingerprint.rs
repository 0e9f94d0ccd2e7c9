//! What the ids of a record were made with.

use serde::{Deserialize, Serialize};

/// The fingerprint of what makes ids of messages, and messages of ids: the tokenizer, the templates and whatever else
/// decides a prompt. Under another one, the same ids say something else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TextFingerprint(Box<str>);

impl TextFingerprint {
    /// The fingerprint of these parts, in their order.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&part.len().to_le_bytes()).update(part);
        }
        Self(hasher.finalize().to_hex().as_str().into())
    }
}
