//! What tells images apart.

use std::fmt;

/// Identifies an image as a model sees it: its encoded bytes, and the settings of the processor. Two images with the same
/// identity have the same patches, as far as 256 bits can tell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageIdentity([u8; 32]);

impl ImageIdentity {
    /// Of the bytes that encode the image, and of everything else that decides its patches.
    pub fn of(encoded: &[u8], settings: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tito 2026-11-26 an image as a model sees it, version 1");
        hasher.update(&(settings.len() as u64).to_le_bytes());
        hasher.update(settings);
        hasher.update(encoded);
        Self(hasher.finalize().into())
    }

    /// Of hexadecimal digits, as [`Display`](fmt::Display) writes them.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let is_lower = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 64 || !digits.iter().all(is_lower) {
            return None;
        }
        blake3::Hash::from_hex(digits).ok().map(|hash| Self(hash.into()))
    }

    /// The bytes, for hashes of what depends on the image.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// In hexadecimal digits, as clients see it.
impl fmt::Display for ImageIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for ImageIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}
