//! What a block of keys and values was computed from.

use std::fmt;

use crate::TokenId;

/// Identifies the content of a block: the weights, the adapter, the salt, and every token from the start of the sequence to the
/// block's last one. Blocks with equal hashes were computed from the same, as far as 256 bits can tell.
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

    /// After some more tokens.
    pub(crate) fn then(self, token_ids: &[TokenId]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        for id in token_ids {
            hasher.update(&id.to_le_bytes());
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

    #[test]
    fn weights_adapter_salt_tokens_and_their_places_all_count() {
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
        assert_eq!(root.then(&[1]).then(&[2]), BlockHash::root(0, None, None).then(&[1]).then(&[2]));
    }
}
