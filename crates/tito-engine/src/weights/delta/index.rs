//! Versions as slime writes them, and SGLang with slime's patch reads them.
//!
//! A directory like a published checkpoint: `model.safetensors.index.json` and the files that it names. Under `metadata` of
//! the index: `version` and `base_version` (digits), `delta_encoding` (`xor`, `overwrite`), `compression_format` (`zstd`),
//! `checksum_format` (`xxh3-128`, `blake3`, `adler32`). A tensor of a file is a patch, and what stands under its name in the
//! file's `__metadata__` is the checksum of all bytes that the tensor has afterwards. Types and shapes are not there, as
//! patches are of bytes. A directory whose index says nothing of a `delta_encoding` is a whole checkpoint.
//!
//! Follows `slime/backends/megatron_utils/update_weight/update_weight_from_disk_delta.py` and
//! `docker/patch/latest/sglang-pull_weights.patch` of slime at 624b824a (21 August 2026).
//!
//! Deliberate deviations: SGLang applies every `*.safetensors` file of the directory, whatever the index says; here, a
//! directory where the two differ is refused. It takes what one patch says after its end for nothing; here, that is refused.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::Deserialize;

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
    weights::{fault, header::quoted_excerpt},
};

/// The name of the index.
pub(super) const INDEX: &str = "model.safetensors.index.json";
/// No index is longer.
const MOST_INDEX_BYTES: u64 = 64 << 20;

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    metadata: serde_json::Map<String, serde_json::Value>,
    weight_map: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(deserialize_with = "number")]
    version: u64,
    #[serde(deserialize_with = "number")]
    base_version: u64,
    delta_encoding: String,
    compression_format: String,
    checksum_format: String,
}

/// Reads the index of a directory; `None` where it is one of a whole checkpoint.
pub(super) fn read(directory: &Path) -> Result<Option<Delta>, DeltaError> {
    let path = directory.join(INDEX);
    let wrong = |reason: &str| DeltaError::format(&path, reason);
    let text = files::read_text(&path, MOST_INDEX_BYTES).map_err(DeltaError::read(&path))?;
    let index: Index = serde_json::from_str(&text).map_err(|error| wrong(&fault(&error)))?;
    if !index.metadata.contains_key("delta_encoding") {
        return Ok(None);
    }
    let metadata = Metadata::deserialize(serde_json::Value::Object(index.metadata));
    let metadata = metadata.map_err(|error| wrong(&fault(&error)))?;
    if metadata.compression_format != "zstd" {
        return Err(wrong("it is compressed in a way that is not read; zstd is"));
    }
    let encoding = match metadata.delta_encoding.as_str() {
        "xor" => Encoding::Xor,
        "overwrite" => Encoding::Overwrite,
        _ => return Err(wrong("its encoding is not read; xor and overwrite are")),
    };
    let algorithm = Algorithm::named(&metadata.checksum_format).map_err(|reason| wrong(&reason))?;
    let patches = read_files(directory, &index.weight_map, algorithm)?;
    let (version, base_version) = (metadata.version, metadata.base_version);
    Ok(Some(Delta { directory: directory.to_owned(), version, base_version, encoding, patches }))
}

/// The patches of all files that the index names, which are all files that there are.
fn read_files(
    directory: &Path,
    weight_map: &BTreeMap<String, String>,
    algorithm: Algorithm,
) -> Result<BTreeMap<String, Patch>, DeltaError> {
    let wrong = |reason: &str| DeltaError::format(&directory.join(INDEX), reason);
    let named: BTreeSet<&str> = weight_map.values().map(String::as_str).collect();
    for entry in directory.read_dir().map_err(DeltaError::read(directory))? {
        let name = entry.map_err(DeltaError::read(directory))?.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".safetensors") && !name.starts_with('.') && !named.contains(name.as_ref()) {
            return Err(wrong(&format!("it does not name {}, which is beside it", quoted_excerpt(&name))));
        }
    }
    let mut patches = BTreeMap::new();
    for name in named {
        let file = PayloadFile::open(directory, name)?;
        for tensor in file.header().tensors() {
            if weight_map.get(&tensor.name).is_none_or(|file| file != name) {
                return Err(wrong(&format!("it does not say that {} is in {name}", quoted_excerpt(&tensor.name))));
            }
            let Some(checksum) = file.header().notes().get(&tensor.name) else {
                let reason = format!("it has no checksum of tensor {}", quoted_excerpt(&tensor.name));
                return Err(DeltaError::format(file.path(), &reason));
            };
            let (payload, checksum) = (file.payload(tensor)?, checksum.clone());
            patches.insert(tensor.name.clone(), Patch { layout: None, payload, algorithm, checksum });
        }
    }
    match weight_map.keys().find(|name| !patches.contains_key(*name)) {
        Some(name) => Err(wrong(&format!("it names tensor {}, which no file holds", quoted_excerpt(name)))),
        None => Ok(patches),
    }
}
