//! What `tests/reference/record_images.py` has recorded.

use std::{fs, path::PathBuf};

use sha2::{Digest, Sha256};

/// A file of tests/golden/images.
pub(crate) fn bytes(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/images");
    fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(crate) fn read(name: &str) -> serde_json::Value {
    serde_json::from_slice(&bytes(name)).unwrap()
}

/// In hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}
