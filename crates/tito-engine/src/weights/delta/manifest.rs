//! Versions as SkyRL writes them.
//!
//! A directory with `manifest.json` and the files of patches that it names. Patches are combined with the old bytes by
//! exclusive or; the checksum of a tensor is of all bytes that it has afterwards.
//!
//! Follows `skyrl/backends/skyrl_train/weight_sync/delta/checkpoint.py` of SkyRL 0.4.0.
//!
//! Deliberate deviations: checksums of old manifests, which are SHA-256, are refused. So is a patch that no record names, one
//! that goes on after its tensor's last byte, and a sum of lengths that is not their sum.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::{Deserialize, de::IgnoredAny};

use super::{
    changes::{Delta, Patch},
    digest::Algorithm,
    error::DeltaError,
    patch::Encoding,
    payload::PayloadFile,
    version_number::number,
};
use crate::{
    files,
    weights::{Layout, WeightDtype, fault, header::quoted_excerpt},
};

/// The name of the manifest.
pub(super) const MANIFEST: &str = "manifest.json";
/// No manifest is longer.
const MOST_MANIFEST_BYTES: u64 = 256 << 20;

#[derive(Deserialize)]
struct Manifest {
    #[serde(deserialize_with = "number")]
    version: u64,
    #[serde(deserialize_with = "number")]
    base_version: u64,
    #[serde(default)]
    tensors: Vec<Record>,
    #[serde(default)]
    total_uncompressed_num_bytes: u64,
    #[serde(default)]
    total_compressed_num_bytes: u64,
    #[serde(default)]
    payload_files: Vec<String>,
}

/// What changed of one tensor. SkyRL refuses further fields too.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    uncompressed_num_bytes: u64,
    compressed_num_bytes: u64,
    payload_file: String,
    payload_key: String,
    checksum: String,
    #[serde(default = "xxh3")]
    checksum_algorithm: String,
    /// Of older versions; `checksum` comes first.
    #[serde(default, rename = "sha256")]
    _sha256: IgnoredAny,
}

fn xxh3() -> String {
    Algorithm::Xxh3.name().to_owned()
}

/// Reads the manifest of a directory.
pub(super) fn read(directory: &Path) -> Result<Delta, DeltaError> {
    let path = directory.join(MANIFEST);
    let wrong = |reason: &str| DeltaError::format(&path, reason);
    let text = files::read_text(&path, MOST_MANIFEST_BYTES).map_err(DeltaError::read(&path))?;
    let manifest: Manifest = serde_json::from_str(&text).map_err(|error| wrong(&fault(&error)))?;
    let unpacked = manifest.tensors.iter().map(|record| record.uncompressed_num_bytes);
    let packed = manifest.tensors.iter().map(|record| record.compressed_num_bytes);
    if !adds_up(manifest.total_uncompressed_num_bytes, unpacked)
        || !adds_up(manifest.total_compressed_num_bytes, packed)
    {
        return Err(wrong("the lengths of its tensors do not add up to what it says"));
    }
    let mut files = BTreeMap::new();
    for name in &manifest.payload_files {
        files.insert(name.as_str(), PayloadFile::open(directory, name)?);
    }
    let mut patches = BTreeMap::new();
    let mut used = BTreeSet::new();
    for record in &manifest.tensors {
        let file = files.get(record.payload_file.as_str()).ok_or_else(|| {
            wrong(&format!("tensor {} is in a file that is not among its files", quoted_excerpt(&record.name)))
        })?;
        let change =
            record.patch(file).map_err(|reason| wrong(&format!("tensor {} {reason}", quoted_excerpt(&record.name))))?;
        used.insert((record.payload_file.as_str(), record.payload_key.as_str()));
        if patches.insert(record.name.clone(), change).is_some() {
            return Err(wrong(&format!("tensor {} is in it twice", quoted_excerpt(&record.name))));
        }
    }
    if let Some((name, _)) = files.iter().find(|(name, file)| !file.is_used(name, &used)) {
        return Err(wrong(&format!("{} holds a patch that it does not name", quoted_excerpt(name))));
    }
    let (version, base_version) = (manifest.version, manifest.base_version);
    Ok(Delta { directory: directory.to_owned(), version, base_version, encoding: Encoding::Xor, patches })
}

/// Whether a sum is right, or not said, for which SkyRL takes 0.
fn adds_up(sum: u64, mut lengths: impl Iterator<Item = u64>) -> bool {
    sum == 0 || lengths.try_fold(0_u64, u64::checked_add) == Some(sum)
}

impl PayloadFile {
    fn is_used(&self, name: &str, used: &BTreeSet<(&str, &str)>) -> bool {
        self.header().tensors().iter().all(|tensor| used.contains(&(name, tensor.name.as_str())))
    }
}

impl Record {
    /// The patch of this record, or what is wrong with it after the tensor's name.
    fn patch(&self, file: &PayloadFile) -> Result<Patch, String> {
        let dtype = match self.dtype.as_str() {
            "bfloat16" => WeightDtype::Bf16,
            "float16" => WeightDtype::F16,
            "float32" => WeightDtype::F32,
            _ => return Err("is of a type that is not read; bfloat16, float16 and float32 are".to_owned()),
        };
        let layout = Layout { dtype, shape: self.shape.clone() };
        if layout.bytes().map(|bytes| bytes as u64) != Some(self.uncompressed_num_bytes) {
            let (shape, bytes) = (&self.shape, self.uncompressed_num_bytes);
            return Err(format!("has the shape {shape:?} of {} and {bytes} bytes, which do not agree", self.dtype));
        }
        let tensor = file.header().tensor(&self.payload_key);
        let tensor = tensor.ok_or_else(|| format!("has no patch in {}", quoted_excerpt(&self.payload_file)))?;
        let payload = file.payload(tensor).map_err(|error| format!("cannot be patched: {error}"))?;
        if payload.length() != self.compressed_num_bytes {
            let (found, said) = (payload.length(), self.compressed_num_bytes);
            return Err(format!("has a patch of {found} bytes, not {said}"));
        }
        let algorithm =
            Algorithm::named(&self.checksum_algorithm).map_err(|reason| format!("cannot be checked: {reason}"))?;
        Ok(Patch { layout: Some(layout), payload, algorithm, checksum: self.checksum.clone() })
    }
}
