//! Deltas that trainers have written, chains of them, and what is refused.

mod chains;
mod damage;
mod recorded;
mod refused;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use serde::Deserialize;
use serde_json::json;

use super::{digest::Algorithm, *};
use crate::weights::{Layout, SafetensorsStream, WeightDtype, WeightTensor, checksum::Checksum};

/// What `tests/golden/weights/record.py` has recorded.
pub(super) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/weights").join(name)
}

/// The tensors that all recorded deltas start from.
pub(super) fn base() -> Vec<WeightTensor> {
    let mut stream = SafetensorsStream::new();
    let tensors = stream.push(fs::read(golden("base/model.safetensors")).unwrap().into()).unwrap();
    stream.finish().unwrap();
    tensors
}

/// A tensor of these bytes after all deltas of a chain.
pub(super) fn applied(chain: &Chain, name: &str, bytes: Vec<u8>) -> Result<Vec<u8>, DeltaError> {
    chain.deltas().iter().try_fold(bytes, |bytes, delta| delta.apply(name, bytes))
}

/// Safetensors of byte vectors.
pub(super) fn payload_file(patches: &[(&str, &[u8])], notes: &serde_json::Value) -> Vec<u8> {
    let mut header = json!({"__metadata__": notes});
    let mut data = Vec::new();
    for (name, patch) in patches {
        let offsets = [data.len(), data.len() + patch.len()];
        header[name] = json!({"dtype": "U8", "shape": [patch.len()], "data_offsets": offsets});
        data.extend_from_slice(patch);
    }
    let header = header.to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}

pub(super) fn packed(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

pub(super) fn xxh3(bytes: &[u8]) -> String {
    let mut hasher = Algorithm::Xxh3.hasher();
    hasher.update(bytes);
    hasher.finish()
}

/// A delta of one tensor as slime writes it.
pub(super) struct Published {
    pub(super) encoding: &'static str,
    pub(super) versions: (u64, u64),
    pub(super) patch: Vec<u8>,
    pub(super) after: Vec<u8>,
}

impl Published {
    /// From some bytes to others.
    pub(super) fn xor(before: &[u8], after: &[u8]) -> Self {
        let patch: Vec<u8> = before.iter().zip(after).map(|(before, after)| before ^ after).collect();
        Self { encoding: "xor", versions: (0, 1), patch: packed(&patch), after: after.to_owned() }
    }

    pub(super) fn write(&self, directory: &Path) {
        fs::create_dir_all(directory).unwrap();
        let (base_version, version) = self.versions;
        let index = json!({
            "metadata": {
                "version": format!("{version:06}"), "base_version": format!("{base_version:06}"),
                "delta_encoding": self.encoding, "compression_format": "zstd", "checksum_format": "xxh3-128",
            },
            "weight_map": {"w": "model-00000-of-00001.safetensors"},
        });
        fs::write(directory.join(index::INDEX), index.to_string()).unwrap();
        let file = payload_file(&[("w", &self.patch)], &json!({"w": xxh3(&self.after)}));
        fs::write(directory.join("model-00000-of-00001.safetensors"), file).unwrap();
    }

    /// What becomes of a tensor.
    pub(super) fn apply(&self, before: &[u8]) -> Result<Vec<u8>, String> {
        let directory = tempfile::tempdir().unwrap();
        self.write(directory.path());
        let delta = Delta::open(directory.path()).map_err(|error| error.to_string())?;
        delta.apply("w", before.to_owned()).map_err(|error| error.to_string())
    }
}
