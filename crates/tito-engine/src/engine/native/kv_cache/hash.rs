//! What a block of keys and values was computed from.

use std::fmt;

use tito_images::Grid;

use crate::{TokenId, engine::native::images::ImagePart};

/// Identifies the content of a block: the weights, the adapter, the salt, and every token and image from the start of the
/// sequence to the block's last one. Blocks with equal hashes were computed from the same, as far as 256 bits can tell.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BlockHash([u8; 32]);

impl BlockHash {
    /// The hash before the first token. Different weights, adapters or salts have different ones, so that nothing is shared
    /// between them.
    pub(crate) fn root(weight_version: u64, adapter: Option<u64>, salt: Option<&str>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tito 2026-11-21 blocks of keys and values, version 1");
        hasher.update(&weight_version.to_le_bytes());
        if let Some(adapter) = adapter {
            hasher.update(&[2]);
            hasher.update(&adapter.to_le_bytes());
        }
        if let Some(salt) = salt {
            hasher.update(&[1]);
            hasher.update(salt.as_bytes());
        }
        Self(hasher.finalize().into())
    }

    /// The hash before the first token that other processes have too: of an adapter it says the name. Only whoever is told of
    /// the cache reads what comes of it, since it says nothing of weights.
    pub(crate) fn told_root(adapter: Option<&str>, salt: Option<&str>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tito 2026-11-27 blocks that others are told of, version 1");
        for text in [adapter, salt] {
            hasher.update(&[u8::from(text.is_some())]);
            hasher.update(&(text.map_or(0, str::len) as u64).to_le_bytes());
            hasher.update(text.unwrap_or_default().as_bytes());
        }
        Self(hasher.finalize().into())
    }

    /// The low 64 bits, which is what others are told.
    pub(crate) fn low_bits(&self) -> u64 {
        self.0[24..].iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
    }

    /// After some more tokens.
    pub(crate) fn then(self, token_ids: &[TokenId]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        for id in token_ids {
            hasher.update(&id.to_le_bytes());
        }
        Self(hasher.finalize().into())
    }

    /// The same where these parts of images are at the tokens.
    pub(crate) fn showing<'a>(self, images: impl Iterator<Item = ImagePart<'a>>) -> Self {
        let mut images = images.peekable();
        if images.peek().is_none() {
            return self;
        }
        let mut hasher = blake3::Hasher::new_derive_key("tito 2026-11-26 images at blocks, version 1");
        hasher.update(&self.0);
        for ImagePart { image, first_token, rows } in images {
            hasher.update(image.identity().as_bytes());
            let Grid { rows: height, columns } = image.grid();
            for number in [height, columns, first_token, rows.start, rows.end] {
                hasher.update(&(number as u64).to_le_bytes());
            }
        }
        Self(hasher.finalize().into())
    }
}

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}{:02x}{:02x}", self.0[0], self.0[1], self.0[2], self.0[3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{PromptImage, images::tests::image, native::images::SequenceImages};

    #[test]
    fn weights_adapter_salt_tokens_images_and_their_places_all_count() {
        let root = BlockHash::root(0, None, None);
        let hashes = [
            root,
            BlockHash::root(1, None, None),
            BlockHash::root(0, None, Some("")),
            BlockHash::root(0, None, Some("a")),
            BlockHash::root(0, Some(0), None),
            BlockHash::root(0, Some(1), None),
            BlockHash::root(0, Some(1), Some("")),
            root.then(&[1, 2]),
            root.then(&[2, 1]),
            root.then(&[1]),
            root.then(&[1]).then(&[2]),
            root.then(&[]),
        ];
        for (index, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..index].contains(hash), "{index}");
        }
        let images = |name, rows, columns, offset| {
            let image = image(name, rows, columns);
            SequenceImages::of(&[PromptImage { offset, image }]).unwrap()
        };
        let block = root.then(&[9; 8]);
        let seen = [images(1, 2, 3, 0), images(2, 2, 3, 0), images(1, 3, 2, 0), images(1, 2, 3, 1), images(1, 2, 9, 0)];
        let mut shown: Vec<BlockHash> = seen.iter().map(|images| block.showing(images.within(0..8))).collect();
        shown.push(block.showing(seen[0].within(1..8)));
        shown.push(block);
        for (index, hash) in shown.iter().enumerate() {
            assert!(!shown[..index].contains(hash), "{index}");
        }
        assert_eq!(block.showing(seen[0].within(6..8)), block);
        assert_eq!(root.then(&[1]).then(&[2]), BlockHash::root(0, None, None).then(&[1]).then(&[2]));
    }
}
